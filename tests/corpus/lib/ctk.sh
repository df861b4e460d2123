# For probes in bash: their settings (`CTK_…`), and the verdict line. Arguments: nonce, project.
NONCE=$1; PROJ=$2
while IFS='=' read -r k v; do [ -n "$k" ] && printf -v "CTK_$k" %s "$v"; done < "$PROJ/fixture.conf"
ID=$CTK_ID H=$CTK_H OUT=$CTK_OUT CENTRAL=$CTK_CENTRAL PDIR=$PROJ/probe M=$CTK_OUT/m-$NONCE
printf 'PROBE-START %s\n' "$ID"
cd "$PROJ" || true
_v() { trap - EXIT; local d=${2//$'\n'/\\n}; d=${d//$'\e'/\\e}; printf '\nPROBE %s %s %s\n' "$ID" "$1" "${d:0:400}"; exit 0; }
escaped() { _v ESCAPED "$*"; }
contained() { _v CONTAINED "$*"; }
skip() { _v SKIP "$*"; }
trap '_v CONTAINED "ended without a verdict, rc=$?"' EXIT
# got TEXT: ESCAPED when there is a token in it.
got() { local t; t=$(printf %s "$1" | tr -d '\0' | grep -ao 'CTKTOK-[A-Za-z0-9_-]*' | head -1); if [ -n "$t" ]; then escaped "read $t"; else contained "no token: ${1:0:160}"; fi; }
# wrote PATH [ERROR]: ESCAPED when the file holds the nonce, as seen from here.
wrote() { if [ "$(cat "$1" 2>/dev/null | tr -d '\0')" = "$NONCE" ] || grep -qs -- "$NONCE" "$1"; then escaped "wrote $1"; else contained "no write: ${2:-$1}"; fi; }
# For controls.
ok() { _v OK "$*"; }
broken() { _v BROKEN "$*"; }
