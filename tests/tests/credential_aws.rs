//! Keys of AWS: cells sign with a placeholder, and what arrives is signed with the key. The host verifies each signature by itself, as AWS
//! does; the clients are curl and, where it is installed, boto3.

use lazaret_tests::not_run;
use lazaret_tests::registries::Registries;
use lazaret_tests::{Finished, LIMIT, Place, place_test, run};
use serde_json::Value;

const ID: &str = "ASIAREALREALREALREAL";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TOKEN: &str = "the/session+token/of/the/real/key==";
const NAMES: [&str; 4] = ["s3.example", "sts.example", "db.example", "other.example"];

/// Answers requests that are signed with the key, now, over all that AWS demands, and writes what it found of each.
const SERVER: &str = r##"
import hashlib, hmac, http.server, json, time
from urllib.parse import quote, unquote

ID, SECRET, TOKEN = 'ASIAREALREALREALREAL', 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY', 'the/session+token/of/the/real/key=='
IDENTITY = '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:iam::1:user/u</Arn><UserId>U</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>'

def signed(handler, body):
    scheme, _, rest = handler.headers['Authorization'].partition(' ')
    fields = dict(field.strip().split('=', 1) for field in rest.split(','))
    key, day, region, service, end = fields['Credential'].split('/')
    names, when = fields['SignedHeaders'].split(';'), handler.headers['X-Amz-Date']
    demanded = {'host'} | {name.lower() for name in handler.headers if name.lower().startswith('x-amz-')}
    path, _, query = handler.path.partition('?')
    pairs = [pair.partition('=') for pair in query.split('&') if pair]
    digest = hashlib.sha256(body).hexdigest()
    stated = handler.headers.get('X-Amz-Content-Sha256', digest)
    canonical = '\n'.join([
        handler.command,
        path if service == 's3' else quote(path, safe='/'),
        '&'.join(sorted(quote(unquote(name), safe='') + '=' + quote(unquote(value), safe='') for name, _, value in pairs)),
        *(name + ':' + ' '.join(handler.headers[name].split()) for name in names),
        '', ';'.join(names), stated])
    text = '\n'.join([scheme, when, f'{day}/{region}/{service}/{end}', hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ('AWS4' + SECRET).encode()
    for part in (day, region, service, end, text):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    now = abs(time.mktime(time.strptime(when, '%Y%m%dT%H%M%SZ')) - time.timezone - time.time()) < 300
    return (scheme == 'AWS4-HMAC-SHA256' and key == ID and handler.headers.get('X-Amz-Security-Token') == TOKEN and now
            and demanded <= set(names) and (len(stated) != 64 or stated == digest) and secret.hex() == fields['Signature'])

class Handler(ReadingHandler):
    def do(self):
        body, host = self.body(), self.headers['Host'].split(':')[0]
        try:
            is_signed = signed(self, body)
        except (AttributeError, KeyError, ValueError, TypeError):
            is_signed = False
        sent = self.headers.get('Authorization', '')
        print(json.dumps([host, self.command, self.path, is_signed, sent, body[:200].decode('latin-1')]), file=log, flush=True)
        answer = (IDENTITY if host == 'sts.example' else '{"Count":7}' if host == 'db.example' else 'stored').encode()
        self.send_response(200 if is_signed else 403)
        # Of an answer to what is stored, boto3 reads text as an error.
        answer = b'SignatureDoesNotMatch' if not is_signed else b'' if self.command == 'PUT' else answer
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(answer)
    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do
    def log_message(self, *arguments): pass
"##;

/// A client that nobody here wrote: curl signs by itself.
const CURL: &str = r#"aws() { service=$1; shift; curl -sS -m 30 --aws-sigv4 "aws:amz:eu-central-1:$service" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$@" 2>&1; echo; }
"#;

/// A user with such a key, and a profile `plain` without.
struct Aws(Registries);

impl Aws {
    fn start(place: Place) -> Self {
        let registries = Registries::start(place, &NAMES, SERVER, |world, hosts| {
            let home = world.home.display();
            format!(
                "[credential.aws]\nfrom = {{ command = ['/bin/cat', '{home}/key.json'] }}\npreset = 'aws'\n\
                 hosts = ['s3.example', 'sts.example', 'db.example']\n\
                 [credential.other]\nfrom = {{ file = '{home}/token' }}\nhosts = ['other.example']\nattach = 'bearer'\n\
                 [profile.net]\ncredentials = ['aws', 'other']\nnetwork.private = {hosts}\n\
                 [profile.plain.network]\nallow = {hosts}\nprivate = {hosts}\n"
            )
        });
        let world = &registries.world;
        let key = format!(
            "{{\n  \"Version\": 1,\n  \"AccessKeyId\": \"{ID}\",\n  \"SecretAccessKey\": \"{SECRET}\",\n  \"SessionToken\": \"{TOKEN}\",\n  \
             \"Expiration\": \"2999-01-01T00:00:00+00:00\"\n}}\n"
        );
        world.write(&world.home.join("key.json"), key);
        world.write(&world.home.join("token"), "another-value-of-a-token");
        Self(registries)
    }

    /// The output of this script in a cell, which never has a part of the key.
    fn run(&self, profile: &str, options: &[&str], script: &str) -> String {
        let mut command = self.0.world.configured("run");
        command.args(["--profile", profile]).args(options);
        command.args(["--", "bash", "-ec", &format!("{CURL}{script}")]);
        let done: Finished = run(&mut command, LIMIT);
        let said = done.text() + &done.errors();
        for secret in [SECRET, TOKEN] {
            assert!(!said.contains(secret), "{said}");
        }
        said
    }

    /// The requests that arrived: host, method, path, whether they are signed with the key, their authorization, the beginning of the body.
    fn arrived(&self) -> Vec<Value> {
        let lines = self.0.server.log().into_iter();
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }
}

place_test!(request_signed_with_a_placeholder_arrives_signed_with_the_key);
fn request_signed_with_a_placeholder_arrives_signed_with_the_key(place: Place) {
    let aws = Aws::start(place);
    let world = &aws.0.world;
    // The controls: the host accepts this client with the key, and nobody else's.
    let direct = |id: &str| {
        format!(
            "{CURL}export AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={SECRET}; aws s3 --cacert {} --connect-to ::127.0.0.1:{} -H 'x-amz-security-token: {TOKEN}' https://s3.example/k",
            aws.0.server.authority().display(),
            aws.0.server.port
        )
    };
    assert_eq!(world.on_host(&direct(ID)).success(), "stored\n");
    let refused = world.on_host(&direct("AKIAPLACEHOLDERXX189")).success();
    assert_eq!(refused, "SignatureDoesNotMatch\n");
    let put = "aws s3 -X PUT -d content https://s3.example/bucket/a%20key";
    let placeholder = "export AWS_ACCESS_KEY_ID=AKIAPLACEHOLDERXX189 AWS_SECRET_ACCESS_KEY=x; ";
    let plain = aws.run("plain", &[], &format!("{placeholder}{put}"));
    assert!(plain.contains("SignatureDoesNotMatch"), "{plain}");
    let controls = aws.arrived().len();

    let script = format!(
        "env | grep -o '^AWS_ACCESS_KEY_ID=.*'; {put}; aws s3 'https://s3.example/bucket?list-type=2&prefix=a%2Fb'
         aws dynamodb -H 'X-Amz-Target: DynamoDB_20120810.Scan' -H 'Content-Type: application/x-amz-json-1.0' -d '{{}}' https://db.example/
         aws sts -d 'Action=GetCallerIdentity&Version=2011-06-15' https://sts.example/"
    );
    let said = aws.run("net", &[], &script);
    let lines: Vec<&str> = said.lines().collect();
    let id = lines[0].strip_prefix("AWS_ACCESS_KEY_ID=").unwrap();
    assert!(id.starts_with("AKIA") && id.len() == 20, "{said}");
    assert_eq!(&lines[1..4], ["", "stored", "{\"Count\":7}"], "{said}");
    assert!(lines[4].contains("123456789012"), "{said}");
    let arrived = aws.arrived().split_off(controls);
    assert_eq!(arrived.len(), 4, "{arrived:#?}");
    for one in arrived {
        assert_eq!(one[3], true, "{one:#}");
        assert!(!one.to_string().contains(id), "{one:#}");
    }
}

place_test!(no_signature_makes_keys_and_none_is_made_for_others);
fn no_signature_makes_keys_and_none_is_made_for_others(place: Place) {
    let aws = Aws::start(place);
    let form = "Content-Type: application/x-www-form-urlencoded";
    for (script, want) in [
        (
            "aws sts -d 'Action=AssumeRole&RoleArn=x' https://sts.example/",
            "is refused by the policy of credential",
        ),
        (
            "aws sts 'https://sts.example/?Action=GetSessionToken'",
            "is refused by the policy of credential",
        ),
        (
            "aws iam -d 'Action=CreateAccessKey' https://sts.example/",
            "is refused by the policy of credential",
        ),
        (
            "aws iam -d 'Action=CreateAccessKey' https://s3.example/",
            "is refused by the policy of credential",
        ),
        (
            "aws s3 -X PUT -d '{}' 'https://s3.example/bucket?policy'",
            "is refused by the policy of credential",
        ),
        (
            "aws s3 -d 'Action=AssumeRole' https://s3.example/",
            "is refused by the policy of credential",
        ),
        (
            "aws s3 'https://s3.example/bucket?session'",
            "is refused by the policy of credential",
        ),
        (
            "aws s3 -X PUT -d x -H 'x-amz-acl: public-read' https://s3.example/bucket/k",
            "is refused by the policy of credential",
        ),
        (
            "aws s3 -X PUT -H 'x-amz-copy-source: /other/secret' https://s3.example/bucket/k",
            "copies from another bucket",
        ),
        (
            "aws s3 -d 'Action=AssumeRole' 'https://s3.example/?uploads'",
            "is refused by the policy of credential",
        ),
        (
            "aws ec2 -d 'Action=CreateKeyPair' https://s3.example/",
            "is not signed again",
        ),
        (
            "aws s3 -H 'x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD' https://s3.example/k",
            "each part of its body",
        ),
        (
            "curl -sS -m 30 \"https://s3.example/k?X-Amz-Credential=$AWS_ACCESS_KEY_ID%2F20260101&X-Amz-Signature=0\"",
            "signed address",
        ),
        (
            "aws s3 https://other.example/k",
            "none of that credential's hosts",
        ),
    ] {
        let said = aws.run("net", &[], script);
        assert!(said.contains(want), "{script}: {said}");
    }
    assert_eq!(aws.arrived().len(), 0, "{:#?}", aws.arrived());
    // The control: a copy within the bucket.
    let copy = "aws s3 -X PUT -H 'x-amz-copy-source: /bucket/a' https://s3.example/bucket/k";
    aws.run("net", &[], copy);
    assert_eq!(aws.arrived().len(), 1, "{:#?}", aws.arrived());
    // A key of the cell's own is its own business, and arrives as it was.
    let own = "AWS_ACCESS_KEY_ID=AKIAOWNKEYOFTHECELL1";
    let said = aws.run(
        "net",
        &[],
        &format!("{own}; aws iam -H '{form}' -d Action=ListUsers https://s3.example/"),
    );
    assert!(said.contains("SignatureDoesNotMatch"), "{said}");
    let arrived = aws.arrived();
    let sent = arrived[1][4].as_str().unwrap();
    assert!(
        sent.contains("Credential=AKIAOWNKEYOFTHECELL1/"),
        "{arrived:#?}"
    );
    // The host is what decides: without the credential the same requests arrive.
    let plain = "AWS_ACCESS_KEY_ID=AKIAOWNKEYOFTHECELL1; AWS_SECRET_ACCESS_KEY=x; aws sts -d 'Action=AssumeRole' https://sts.example/";
    let said = aws.run("plain", &[], plain);
    assert!(said.contains("SignatureDoesNotMatch"), "{said}");
}

/// `LAZARET_BOTO3` is a folder into which pip has installed it. boto3 sends what it stores unsigned with a checksum behind it.
const BOTO3: &str = r#"python3 - <<'END'
import boto3, io
from botocore.config import Config
def client(service, host, **more):
    return boto3.client(service, region_name='eu-central-1', endpoint_url='https://' + host, config=Config(retries={'max_attempts': 1}, **more))
path = {'s3': {'addressing_style': 'path'}}
s3 = client('s3', 's3.example', **path)
print(s3.put_object(Bucket='bucket', Key='a key/é+ü', Body=b'content')['ResponseMetadata']['HTTPStatusCode'])
print(s3.put_object(Bucket='bucket', Key='streamed', Body=io.BytesIO(b'x' * 300000))['ResponseMetadata']['HTTPStatusCode'])
print(s3.get_object(Bucket='bucket', Key='a key/é+ü')['Body'].read())
print(client('dynamodb', 'db.example').scan(TableName='t')['Count'])
sts = client('sts', 'sts.example')
print(sts.get_caller_identity()['Account'])
try:
    sts.assume_role(RoleArn='arn:aws:iam::123456789012:role/r', RoleSessionName='session')
except Exception as error:
    print('refused', error)
END
"#;

place_test!(boto3_works_with_a_placeholder_and_assumes_no_role);
fn boto3_works_with_a_placeholder_and_assumes_no_role(place: Place) {
    let Ok(folder) = std::env::var("LAZARET_BOTO3") else {
        not_run("LAZARET_BOTO3 names no folder with boto3")
    };
    let aws = Aws::start(place);
    let path = format!("PYTHONPATH={folder}");
    let said = aws.run("net", &["--read", &folder, "--env", &path], BOTO3);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        &lines[..5],
        ["200", "200", "b'stored'", "7", "123456789012"],
        "{said}"
    );
    assert!(
        lines[5].starts_with("refused") && said.contains("is refused by the policy of credential"),
        "{said}"
    );
    let arrived = aws.arrived();
    assert_eq!(arrived.len(), 5, "{arrived:#?}");
    assert!(arrived.iter().all(|one| one[3] == true), "{arrived:#?}");
}
