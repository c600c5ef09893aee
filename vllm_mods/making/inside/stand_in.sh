#!/bin/sh
# Stands in for a command that fetches or changes files: it runs the real one and notes how that failed. Where a patch may
# fail it notes each, and those behind VLLM_MODS_STEPS fail unseen. What a registry has put each entry in by is watched.
name=${0##*/}
python=$(PATH=$VLLM_MODS_PATH; command -v python3)
real=$(PATH=$VLLM_MODS_PATH; command -v "$name" || { [ "$name" = python ] && echo "$python"; })
if [ "$name,$VLLM_MODS_ENTRY" = "$VLLM_MODS_EACH," ] && [ -x "$real" ] && [ "$PPID" -ne 1 ]; then
    exec "$python" -I "$VLLM_MODS_HOME/vllm_mods_entries.py" "$real" "$@"
fi
case $name in
    pip | pip3 | uv) exec "$python" "$VLLM_MODS_HOME/pip_stand_in.py" "$name" "$@" ;;
    curl | wget)
        if [ -f "$VLLM_MODS_HOME/fetched/index.json" ]; then
            exec "$python" -I "$VLLM_MODS_HOME/served.py" "$name" "$@"
        fi ;;
esac
step=
case $name,$VLLM_MODS_MAY_FAIL in git,*" ${VLLM_MODS_LINE##*/} "* | patch,*" ${VLLM_MODS_LINE##*/} "*)
    echo >> "$VLLM_MODS_HOME/steps"
    step=$(wc -l < "$VLLM_MODS_HOME/steps")
    [ "$step" -le "${VLLM_MODS_STEPS:-$step}" ] || exit 1 ;;
esac
if [ -x "$real" ]; then
    "$real" "$@"
    code=$?
else
    echo "$name: not found" >&2
    code=127
fi
if [ $code -ne 0 ] || [ "$step" ]; then
    { printf '%s\0' "$code" "${VLLM_MODS_LINE-}" "$name" "$@"; echo; } >> "$VLLM_MODS_HOME/asked"
fi
exit $code
