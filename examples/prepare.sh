# Functions for the `run.sh` of each example; read with `.`, not run.
#
# An example starts what it needs on loopback, shows the result, and ends everything that it started.

set -eu
cd "$(dirname "$0")"
ROOT=$(cd ../.. && pwd)
WORK=$(mktemp -d)
STARTED=

finish() {
  for process in $STARTED; do
    # Not in order: a host of the gateway may wait minutes for its last requests.
    kill -KILL "$process" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 1' INT TERM

# The gateway: the installed one, or else one that is built here (the first time takes minutes).
if command -v mcp-a2a-gateway >/dev/null; then
  GATEWAY=mcp-a2a-gateway
else
  command -v cargo >/dev/null || { echo 'needs mcp-a2a-gateway or cargo in the PATH' >&2; exit 1; }
  cargo build --release --manifest-path "$ROOT/Cargo.toml"
  GATEWAY=$ROOT/target/release/mcp-a2a-gateway
fi

# start NAME TEXT COMMAND...: runs a command in the background until the end, and waits until it has
# printed this text, if there is one.
start() {
  name=$1 text=$2
  shift 2
  : >"$WORK/$name.log"
  "$@" >>"$WORK/$name.log" 2>&1 &
  process=$!
  STARTED="$STARTED $process"
  until [ -z "$text" ] || grep -q -e "$text" "$WORK/$name.log"; do
    kill -0 "$process" 2>/dev/null || { cat "$WORK/$name.log" >&2; exit 1; }
    sleep 0.05
  done
}

# stop: kills the process that was started last, at once.
stop() {
  kill -KILL "$process"
  wait "$process" 2>/dev/null || true
}

# tool NAME ARGUMENTS [CURL OPTIONS...]: calls a tool and prints the text of its result.
tool() {
  name=$1 arguments=$2
  shift 2
  curl -sS --retry 3 --retry-connrefused "$@" "${MCP:-http://127.0.0.1:8080/mcp}" -H 'Content-Type: application/json' \
    -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'"$name"'","arguments":'"$arguments"'}}' |
    python3 -c 'import json, sys
answer = json.load(sys.stdin)
blocks = answer["result"]["content"] if "result" in answer else [{"text": "error: " + answer["error"]["message"]}]
print(next(block["text"] for block in blocks if "text" in block))'
}
