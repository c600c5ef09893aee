#compdef %(prog_name)s
%(complete_func)s() {
    local row
    local -a parts plain open told
    compset -P '--*='
    for row in "${(@f)$(%(complete_var)s=zsh_complete VLLM_MODS_LINE="${(j: :)words[1,CURRENT]}" "${words[1]}" 2>/dev/null)}"; do
        parts=("${(@ps:\t:)row}")
        case $parts[1] in
            dir) _path_files -/ ;;
            file) _path_files ;;
            plain)
                if [[ $parts[2] == *: ]]; then open+=("$parts[2]")
                elif [[ -n $parts[3] ]]; then told+=("$parts[2]:$parts[3]")
                else plain+=("$parts[2]"); fi ;;
        esac
    done
    (( $#open )) && compadd -S '' -a open
    (( $#plain )) && compadd -V values -a plain
    (( $#told )) && _describe -V '' told
    return 0
}
compdef %(complete_func)s %(prog_name)s
