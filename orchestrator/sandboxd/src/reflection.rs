//! gRPC's reflection, v1 and v1alpha, which differ in the service's name alone: the description of the process service, for tools that
//! have none.

use crate::body::{Incomplete, Produced, ReplyBody};
use crate::fault::{FaultKind, SandboxFault};
use crate::grpc::{self, GrpcReader, encoded};
use hyper::Request;
use hyper::body::{Bytes, Frame, Incoming};
use prost::Message;
use tokio::sync::mpsc;

/// The output of `protoc --include_imports` for `proto/process/v1/process.proto`; `tests/sandboxd/drive.py` makes it again and compares.
const DESCRIPTORS: &[u8] = include_bytes!("../proto/process.binpb");
/// The methods of both versions.
pub(crate) const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Bytes of a request, which has a name.
const REQUEST_MAX: usize = 4096;

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuery", tags = "3, 4, 5, 6, 7")]
    query: Option<ReflectionQuery>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionQuery {
    #[prost(string, tag = "3")]
    FileByName(String),
    #[prost(string, tag = "4")]
    FileOfSymbol(String),
    /// A message that nothing here is done with.
    #[prost(bytes = "vec", tag = "5")]
    FileOfExtension(Vec<u8>),
    #[prost(string, tag = "6")]
    ExtensionsOf(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionResponse {
    #[prost(string, tag = "1")]
    valid_host: String,
    #[prost(message, optional, tag = "2")]
    original: Option<ReflectionRequest>,
    #[prost(oneof = "ReflectionAnswer", tags = "4, 6, 7")]
    answer: Option<ReflectionAnswer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionAnswer {
    #[prost(message, tag = "4")]
    Files(DescriptorSet),
    #[prost(message, tag = "6")]
    Services(ServiceList),
    #[prost(message, tag = "7")]
    Error(ReflectionError),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionError {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// Descriptions of files, each with its own bytes: as `protoc` writes them, and as an answer has them.
#[derive(Clone, PartialEq, prost::Message)]
struct DescriptorSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceList {
    #[prost(message, repeated, tag = "1")]
    named: Vec<NamedItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedItem {
    #[prost(string, tag = "1")]
    name: String,
}

/// The names in a file's description (`google/protobuf/descriptor.proto`).
#[derive(Clone, PartialEq, prost::Message)]
struct FileNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<MessageNames>,
    #[prost(message, repeated, tag = "5")]
    enums: Vec<NamedItem>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<ServiceNames>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MessageNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<NamedItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<NamedItem>,
}

/// The answers to a client's requests, one after the other, until it sends no more.
pub(crate) fn follow(request: Request<Incoming>) -> ReplyBody {
    let (send, body) = Produced::channel(None);
    tokio::task::spawn_local(async move {
        // Without a client there is nobody to tell.
        let _ = answer_all(request, &send).await;
    });
    body
}

async fn answer_all(
    request: Request<Incoming>,
    send: &mpsc::Sender<Result<Frame<Bytes>, Incomplete>>,
) -> Result<(), Incomplete> {
    let mut reader = GrpcReader::new(request.into_body(), REQUEST_MAX);
    let ended = loop {
        match reader.next::<ReflectionRequest>().await {
            Ok(Some(asked)) => {
                let frame = Frame::data(encoded(&respond(asked)));
                send.send(Ok(frame)).await.map_err(|_| Incomplete)?;
            }
            Ok(None) => break Ok(()),
            Err(fault) => break Err(fault),
        }
    };
    let last = Frame::trailers(grpc::trailers(&ended));
    send.send(Ok(last)).await.map_err(|_| Incomplete)
}

fn respond(asked: ReflectionRequest) -> ReflectionResponse {
    let answer = match answer(asked.query.as_ref()) {
        Ok(answer) => answer,
        Err(fault) => ReflectionAnswer::Error(ReflectionError {
            code: fault.kind.grpc().into(),
            message: fault.message,
        }),
    };
    ReflectionResponse {
        valid_host: asked.host.clone(),
        original: Some(asked),
        answer: Some(answer),
    }
}

fn answer(query: Option<&ReflectionQuery>) -> Result<ReflectionAnswer, SandboxFault> {
    match query {
        Some(ReflectionQuery::FileByName(name)) => file(name, |file| file.name == *name),
        Some(ReflectionQuery::FileOfSymbol(name)) => file(name, |file| file.declares(name)),
        Some(ReflectionQuery::Services(_)) => {
            let files = described()?.into_iter();
            let named = files.flat_map(|(file, _)| file.full_names_of_services());
            let named = named.map(|name| NamedItem { name }).collect();
            Ok(ReflectionAnswer::Services(ServiceList { named }))
        }
        Some(ReflectionQuery::FileOfExtension(_) | ReflectionQuery::ExtensionsOf(_)) => {
            let message = "there are no extensions";
            Err(SandboxFault::new(FaultKind::NotFound, message))
        }
        None => Err(SandboxFault::invalid("the request has no query")),
    }
}

/// The description of the file that is meant. A client asks for those that it imports when it wants them.
fn file(
    name: &str,
    is_meant: impl Fn(&FileNames) -> bool,
) -> Result<ReflectionAnswer, SandboxFault> {
    let mut files = described()?.into_iter();
    match files.find(|(file, _)| is_meant(file)) {
        Some((_, bytes)) => Ok(ReflectionAnswer::Files(DescriptorSet {
            files: vec![bytes],
        })),
        None => {
            let message = format!("{name} is not described here");
            Err(SandboxFault::new(FaultKind::NotFound, message))
        }
    }
}

/// Each file with its names.
fn described() -> Result<Vec<(FileNames, Vec<u8>)>, SandboxFault> {
    let broken = |error: prost::DecodeError| {
        SandboxFault::new(FaultKind::Internal, format!("the description: {error}"))
    };
    let set = DescriptorSet::decode(DESCRIPTORS).map_err(broken)?;
    let named = set.files.into_iter().map(|bytes| {
        let names = FileNames::decode(bytes.as_slice()).map_err(broken)?;
        Ok((names, bytes))
    });
    named.collect()
}

impl FileNames {
    fn full_names_of_services(&self) -> Vec<String> {
        let services = self.services.iter();
        services
            .map(|service| format!("{}.{}", self.package, service.name))
            .collect()
    }

    /// Whether a name with its package is declared here: of a message or what is in it, an enumeration, a service or a method.
    fn declares(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.package.as_str());
        let Some(rest) = rest.and_then(|rest| rest.strip_prefix('.')) else {
            return false;
        };
        let (outer, inner) = match rest.split_once('.') {
            Some((outer, inner)) => (outer, Some(inner)),
            None => (rest, None),
        };
        let has = |names: &[NamedItem]| match inner {
            None => true,
            Some(inner) => names.iter().any(|named| named.name == inner),
        };
        let is_message = |message: &MessageNames| message.name == outer && has(&message.nested);
        let is_service = |service: &ServiceNames| service.name == outer && has(&service.methods);
        self.messages.iter().any(is_message)
            || self.services.iter().any(is_service)
            || self.enums.iter().any(|named| named.name == rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_service::SERVICE;

    fn asked(query: ReflectionQuery) -> ReflectionAnswer {
        let host = "here".to_owned();
        let query = Some(query);
        let request = ReflectionRequest { host, query };
        let response = respond(request.clone());
        assert_eq!(response.valid_host, "here");
        assert_eq!(response.original, Some(request));
        response.answer.unwrap()
    }

    fn names(query: ReflectionQuery) -> Option<String> {
        match asked(query) {
            ReflectionAnswer::Files(set) => {
                let file = FileNames::decode(set.files[0].as_slice()).unwrap();
                assert_eq!(set.files.len(), 1);
                Some(file.name)
            }
            ReflectionAnswer::Services(_) => panic!("no file was listed"),
            ReflectionAnswer::Error(error) => {
                assert_eq!(error.code, 5, "{error:?}");
                None
            }
        }
    }

    #[test]
    fn each_name_of_the_service_is_found_in_its_file() {
        let process = Some("process/v1/process.proto".to_owned());
        let empty = Some("google/protobuf/empty.proto".to_owned());
        for (symbol, file) in [
            ("process.v1.ProcessService", &process),
            ("process.v1.ProcessService.ResizeTTY", &process),
            ("process.v1.StartRequest", &process),
            ("process.v1.ProcessConfig.EnvVarsEntry", &process),
            ("process.v1.Signal", &process),
            ("google.protobuf.Empty", &empty),
            ("process.v1", &None),
            ("process.v1.", &None),
            ("process.v1.ProcessService.Stop", &None),
            ("process.v1.Signal.SIGNAL_SIGINT", &None),
            ("ProcessService", &None),
            ("", &None),
        ] {
            let found = names(ReflectionQuery::FileOfSymbol(symbol.into()));
            assert_eq!(found, *file, "{symbol}");
        }
        for file in [&process, &empty].into_iter().flatten() {
            let found = names(ReflectionQuery::FileByName(file.clone()));
            assert_eq!(found.as_ref(), Some(file));
        }
        assert_eq!(
            names(ReflectionQuery::FileByName("/etc/passwd".into())),
            None
        );
        assert_eq!(
            names(ReflectionQuery::ExtensionsOf("process.v1.Pty".into())),
            None
        );
    }

    #[test]
    fn the_service_that_is_served_is_listed() {
        let ReflectionAnswer::Services(list) = asked(ReflectionQuery::Services(String::new()))
        else {
            panic!("no services");
        };
        let listed: Vec<_> = list
            .named
            .iter()
            .map(|named| format!("/{}/", named.name))
            .collect();
        assert_eq!(listed, [SERVICE]);
        assert!(answer(None).is_err());
    }
}
