#!/bin/bash
# Is an incident of this kind open on this node? For node-problem-detector: exit 0 no, 1 yes (stdout: how many), 2 unknown.
# usage: vllm-watch-incident.sh KIND [HOST PORT]   The watcher's metrics have to be readable without a password.
set -u
LC_ALL=C # lengths are bytes
kind=$1 host=${2:-127.0.0.1} port=${3:-9470}
unknown() { echo "$1"; exit 2; }

{ exec 3<>"/dev/tcp/$host/$port"; } 2> /dev/null || unknown "vllm-watch does not answer on port $port"
printf 'GET /metrics HTTP/1.0\r\nHost: %s:%s\r\n\r\n' "$host" "$port" >&3
IFS= read -r -t 3 line <&3 || unknown "vllm-watch does not answer in time"
[[ $line == *' 200 '* ]] || unknown "vllm-watch answers ${line%$'\r'}"
bytes=0
while IFS= read -r -t 3 line <&3 && [ "$line" != $'\r' ]; do
    [[ ${line,,} == content-length:* ]] && bytes=${line//[!0-9]/}
done
open=0
while IFS= read -r -t 3 line; do
    bytes=$((bytes - ${#line} - 1))
    [[ $line == "vllm_watch_incident_open{"*"kind=\"$kind\""*"} 1"* ]] && open=$((open + 1))
done <&3
((bytes == 0)) || unknown "the metrics of vllm-watch are not complete"
((open == 0)) || { echo "$open open, see the page of vllm-watch"; exit 1; }
echo "none open"
