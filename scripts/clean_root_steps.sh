# The steps of scripts/clean-roots, inside the root.
#
# Usage: bash clean_root_steps.sh INDEX
set -Eeuo pipefail
trap 'echo "clean-roots: stopped, this failed: $BASH_COMMAND" >&2' ERR
index=$1
app=/opt/app
log=/tmp/log
cd /tmp

fail() { echo "clean-roots: $*" >&2; exit 1; }

# Prints the time of a step. The output of a step that failed is shown.
step() {  # TEXT COMMAND...
    local text=$1 began_s
    shift
    began_s=$EPOCHREALTIME
    "$@" >"$log" 2>&1 || { cat "$log" >&2; fail "failed: $text"; }
    printf '  %-46s %7.1f s\n' "$text" "$(awk -v a="$began_s" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')"
}

for compiler in cc gcc clang c++ rustc cargo; do
    ! command -v "$compiler" >/dev/null || fail "the root has a compiler: $compiler"
done

files() { find "$app" -path '*/__pycache__' -prune -o -print | sort; }

cat >hello.py <<'P'
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]
P
cat >ask.py <<'P'
import re, time, urllib.request
while not (found := re.search("listening on (http://[^ \n]+)", open("serve.log").read())):
    time.sleep(0.1)
print(urllib.request.urlopen(found[1], timeout=60).read().decode())
P

report() {
    "$app/bin/headway" run /tmp/known_wait.py
}

serve() {
    local server status=0
    "$app/bin/headway" serve hello:app --bind 127.0.0.1:0 >serve.log 2>&1 &
    server=$!
    timeout 120 "$app/bin/python" ask.py || status=$?
    kill "$server" && wait "$server" || status=$?
    cat serve.log
    return "$status"
}

step 'a virtual environment' python3 -m venv "$app"
files >before
step 'pip install from the index' "$app/bin/pip" install --index-url "file://$index" --disable-pip-version-check --no-cache-dir headway
[ -f "$app"/lib/python3*/site-packages/headway_follow.pth ] || fail "the .pth file is missing"
step 'headway run: the first report' report
grep -Eq '^MainThread +[23][0-9][0-9] ms ' "$log" || { cat "$log" >&2; fail "the report lacks the wait of 300 ms"; }
sed -n '/^thread /,/^$/{/./s/^/    /p}' "$log"
step 'headway serve, one request, and its end' serve
grep -q '^hello$' "$log" || { cat "$log" >&2; fail "the server did not answer"; }
sed -n '/listening/s/^/    /p' "$log"
step 'pip uninstall' "$app/bin/pip" uninstall --yes --disable-pip-version-check headway
files >after
cmp -s before after || { diff before after >&2; fail "the uninstallation left something"; }
find "$app" -iname '*headway*' | grep . >&2 && fail "the uninstallation left the files above"
echo "  nothing of Headway is left; $(python3 --version), $(. /etc/os-release; echo "$PRETTY_NAME")"
