# Sourced by each bash of a recording: it tells the stand-ins the line of the script, notes the step that ended a
# script with a failure, and what the first script exports. A line of VLLM_MODS_LEFT_OUT is passed over, as if all of
# it went well: extdebug has bash do so where the trap ends with 1.
export VLLM_MODS_LINE=
__before=
__ended() {
    # bash tells the command of a script, and of `bash -c` its own trap
    [ -z "${BASH_EXECUTION_STRING-}" ] || set -- "$1" "$2" "${BASH_EXECUTION_STRING%%$'\n'*}"
    [ "$1" -eq 0 ] || { printf '%s\0' "$1" "$2" exit "$3"; echo; } >> "$VLLM_MODS_HOME/asked"
    [ "$PPID" -ne 1 ] || env -0 > "$VLLM_MODS_HOME/exported"
}
set -T
trap '__before=$VLLM_MODS_LINE VLLM_MODS_LINE="${BASH_SOURCE[0]-}:$LINENO"
    case ${VLLM_MODS_LEFT_OUT-} in *" ${VLLM_MODS_LINE##*/} "*) shopt -s extdebug; ! : ;; esac' DEBUG
trap '__ended "$?" "$__before" "$BASH_COMMAND"' EXIT
