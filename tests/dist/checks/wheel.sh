wheel=$(echo /packages/lazaret_sandbox-"$VERSION"-*"$ARCH".whl)
bin="$home/venv/bin"

pip() { as_user "$bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

prepare() { as_user /usr/bin/python3 -m venv "$home/venv"; }

install() {
  pip install --no-index "$wheel"
  step "the client finds the programs of its own package, without PATH"
  bin=/usr/bin as_user "$home/venv/bin/python" -c '
import lazaret_sandbox
with lazaret_sandbox.Session(".") as session:
    print(session.run(["cat", "main.rs"]).text)' >/tmp/client.log 2>&1 || fail "$(cat /tmp/client.log)"
  contains "$(cat /tmp/client.log)" 'fn main'
}

check_modes() {
  [ -z "$(find "$home/venv" ! -type l -perm /6022)" ] || fail "files for others to write"
}

upgrade() { pip install --no-index --force-reinstall "$wheel"; }

remove() { pip uninstall --yes lazaret-sandbox; }
