#!/bin/sh
# Stands in for a command that fetches or changes files: it runs the real one and notes how that failed.
name=${0##*/}
python=$(PATH=$VLLM_MODS_PATH; command -v python3)
real=$(PATH=$VLLM_MODS_PATH; command -v "$name" || { [ "$name" = python ] && echo "$python"; })
case $name in
    pip | pip3 | uv) exec "$python" "$VLLM_MODS_HOME/pip_stand_in.py" "$name" "$@" ;;
    curl | wget)
        if [ -f "$VLLM_MODS_HOME/fetched/index.json" ]; then
            exec "$python" -I "$VLLM_MODS_HOME/served.py" "$name" "$@"
        fi ;;
esac
if [ -x "$real" ]; then
    "$real" "$@"
    code=$?
else
    echo "$name: not found" >&2
    code=127
fi
if [ $code -ne 0 ]; then
    { printf '%s\0' "$code" "${VLLM_MODS_LINE-}" "$name" "$@"; echo; } >> "$VLLM_MODS_HOME/asked"
fi
exit $code
