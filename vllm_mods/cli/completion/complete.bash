# bash takes ":" and "=" for ends of words: of what it replaces, only the last piece is given back.
%(complete_func)s() {
    local kind value help line="${COMP_LINE:0:COMP_POINT}" word before=""
    word="${line##*[[:space:]]}"
    [[ $word == --*=* ]] && word="${word#*=}"
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && before="${word%%"${word##*:}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            plain)
                COMPREPLY+=("${value#"$before"}")
                [[ $value == *: ]] && compopt -o nospace ;;
            dir) compopt -o plusdirs ;;
            file) compopt -o default ;;
        esac
    done < <(%(complete_var)s=bash_complete VLLM_MODS_LINE="$line" "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
