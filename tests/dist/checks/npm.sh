bin="$home/app/node_modules/.bin"

prepare() {
  mkdir "$home/app"
  echo '{"private":true}' >"$home/app/package.json"
  chown -R 1500:1500 "$home/app"
}

npm_here() {
  bin=$system as_user npm --prefix "$home/app" --offline --no-audit --no-fund --silent "$@"
}

install() {
  # The client asks for the programs of both processors as optional dependencies; here both come as files.
  npm_here install "/packages/lazaret-sandbox-linux-$NODE_ARCH-$VERSION.tgz" "/packages/lazaret-sandbox-$VERSION.tgz"
  step "the client finds the programs of its own package, without PATH"
  cat >"$home/app/client.mjs" <<'END'
import { Session } from "lazaret-sandbox";
const session = await Session.open({ project: "." });
console.log(String((await session.run(["cat", "main.rs"])).stdout));
await session.close();
END
  bin=/usr/bin as_user node "$home/app/client.mjs" >/tmp/client.log 2>&1 || fail "$(cat /tmp/client.log)"
  contains "$(cat /tmp/client.log)" 'fn main'
  rm "$home/app/client.mjs"
}

check_modes() {
  [ -z "$(find "$home/app" ! -type l -perm /6022)" ] || fail "files for others to write"
}

upgrade() {
  rm -r "$home/app/node_modules"
  npm_here install
}

remove() {
  npm_here uninstall lazaret-sandbox "lazaret-sandbox-linux-$NODE_ARCH"
  rm -rf "$home/app/node_modules" "$home/app/package-lock.json"
  echo '{"private":true}' >"$home/app/package.json"
}
