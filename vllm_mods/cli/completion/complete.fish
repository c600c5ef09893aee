function %(complete_func)s
    set -l line (commandline --cut-at-cursor --current-process)
    set -l token (commandline --current-token --cut-at-cursor)
    set -l before (string match --regex -- '^--[^=]*=' $token)
    for row in (env %(complete_var)s=fish_complete VLLM_MODS_LINE="$line" %(prog_name)s 2>/dev/null)
        set -l parts (string split \t -- $row)
        switch $parts[1]
            case dir
                string replace --regex -- '^' "$before" (__fish_complete_directories $parts[2] '')
            case file
                string replace --regex -- '^' "$before" (__fish_complete_path $parts[2] '')
            case plain
                printf '%%s%%s\t%%s\n' "$before" $parts[2] "$parts[3]"
        end
    end
end
complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
