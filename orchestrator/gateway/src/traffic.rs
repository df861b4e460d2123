//! Connections of programs: their bytes, and the reports of their ends.

use broker_protocol::gateway::{ConnectionEnds, FromGateway};
use broker_protocol::{CallId, ConnectionVerdict};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::sleep;

/// How long ends are counted before they are reported.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of places and calls whose ends are counted; with one more, all are reported at once.
const PLACES_MAX: usize = 256;

/// The call of connections that belong to none, such as those of what runs in the background: no client waits for it.
pub(crate) const NO_CALL: CallId = 0;

/// A connection of a program of a call, or of [`NO_CALL`].
#[derive(Debug)]
pub struct ProgramConnection {
    pub stream: TcpStream,
    pub call: CallId,
    pub traffic: Arc<Traffic>,
}

/// The bytes that a program has sent on its connection, and received.
#[derive(Debug, Default)]
pub struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes sent and received so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (now(&self.sent), now(&self.received))
    }
}

pub(crate) fn of_call(call: CallId) -> Option<CallId> {
    Some(call).filter(|call| *call != NO_CALL)
}

/// Host, port, call and verdict of a connection, as it was reported at its beginning.
type EndKey = (String, u16, Option<CallId>, ConnectionVerdict);

#[derive(Default)]
struct EndCount {
    connections: u32,
    sent: u64,
    received: u64,
}

/// Counts the connections that have ended, and reports them.
pub(crate) struct EndReports {
    /// Those that have not ended, by numbers of ours.
    open: RefCell<BTreeMap<u64, (EndKey, Arc<Traffic>)>>,
    ended: RefCell<HashMap<EndKey, EndCount>>,
    last: Cell<u64>,
    is_pending: Cell<bool>,
    tell: Box<dyn Fn(&FromGateway)>,
}

/// A connection that ends when this is dropped.
pub(crate) struct OpenConnection {
    number: u64,
    pub traffic: Arc<Traffic>,
    reports: Rc<EndReports>,
}

impl EndReports {
    pub(crate) fn new(tell: impl Fn(&FromGateway) + 'static) -> Rc<Self> {
        Rc::new(Self {
            open: RefCell::default(),
            ended: RefCell::default(),
            last: Cell::new(0),
            is_pending: Cell::new(false),
            tell: Box::new(tell),
        })
    }

    /// A connection to a place begins. Needs a local runtime.
    pub(crate) fn begin(
        self: &Rc<Self>,
        (host, port): (&str, u16),
        call: Option<CallId>,
        verdict: ConnectionVerdict,
    ) -> OpenConnection {
        let number = self.last.get() + 1;
        self.last.set(number);
        let traffic = Arc::<Traffic>::default();
        let key = (host.to_owned(), port, call, verdict);
        self.open
            .borrow_mut()
            .insert(number, (key, traffic.clone()));
        OpenConnection {
            number,
            traffic,
            reports: self.clone(),
        }
    }

    /// Reports those that are open as ended, and all that was counted: with this process they end.
    pub(crate) fn finish(&self) {
        for (key, traffic) in take(&mut *self.open.borrow_mut()).into_values() {
            self.count(key, &traffic);
        }
        self.flush();
    }

    fn end(self: &Rc<Self>, number: u64) {
        let Some((key, traffic)) = self.open.borrow_mut().remove(&number) else {
            return;
        };
        self.count(key, &traffic);
        if self.is_pending.replace(true) {
            return;
        }
        let reports = self.clone();
        spawn_local(async move {
            sleep(INTERVAL).await;
            reports.flush();
        });
    }

    fn count(&self, key: EndKey, traffic: &Traffic) {
        let is_known = self.ended.borrow().contains_key(&key);
        if !is_known && self.ended.borrow().len() == PLACES_MAX {
            self.flush();
        }
        let mut ended = self.ended.borrow_mut();
        let count = ended.entry(key).or_default();
        count.connections = count.connections.saturating_add(1);
        let (sent, received) = traffic.counts();
        count.sent = count.sent.saturating_add(sent);
        count.received = count.received.saturating_add(received);
    }

    fn flush(&self) {
        self.is_pending.set(false);
        for ((host, port, call, verdict), count) in take(&mut *self.ended.borrow_mut()) {
            (self.tell)(&FromGateway::Disconnected(ConnectionEnds {
                host,
                port,
                call,
                verdict,
                count: count.connections,
                sent: count.sent,
                received: count.received,
            }));
        }
    }
}

impl OpenConnection {
    /// The side of its program, for the relay.
    pub(crate) fn of(&self, stream: TcpStream, call: CallId) -> ProgramConnection {
        ProgramConnection {
            stream,
            call,
            traffic: self.traffic.clone(),
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.reports.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    type Reported = Rc<RefCell<Vec<ConnectionEnds>>>;

    fn recorded(test: impl AsyncFnOnce(Rc<EndReports>, Reported)) {
        let told = Reported::default();
        let heard = told.clone();
        let reports = EndReports::new(move |frame| match frame {
            FromGateway::Disconnected(ends) => heard.borrow_mut().push(ends.clone()),
            other => panic!("{other:?}"),
        });
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, test(reports, told));
    }

    #[test]
    fn ends_of_a_second_are_one_report_for_each_place_and_call() {
        recorded(async |reports, told| {
            for call in [Some(1), Some(1), Some(2), None] {
                let open = reports.begin(("a.example", 443), call, ConnectionVerdict::Allowed);
                open.traffic.add_sent(3);
                open.traffic.add_received(5);
            }
            assert!(told.borrow().is_empty());
            sleep(INTERVAL * 2).await;
            let mut counts = told.take();
            counts.sort_by_key(|one| one.call);
            let counts = counts
                .iter()
                .map(|one| (one.call, one.count, one.sent, one.received));
            let expected = [(None, 1, 3, 5), (Some(1), 2, 6, 10), (Some(2), 1, 3, 5)];
            assert_eq!(counts.collect::<Vec<_>>(), expected);
            drop(reports.begin(("a.example", 443), None, ConnectionVerdict::Allowed));
            sleep(INTERVAL * 2).await;
            assert_eq!(told.borrow().len(), 1, "the next second has a report too");
        });
    }

    #[test]
    fn connections_that_are_open_at_the_end_are_reported_once() {
        recorded(async |reports, told| {
            let open = reports.begin(("a.example", 443), Some(1), ConnectionVerdict::Allowed);
            open.traffic.add_sent(7);
            reports.finish();
            assert_eq!(told.borrow().len(), 1);
            assert_eq!(told.borrow()[0].sent, 7);
            drop(open);
            sleep(INTERVAL * 2).await;
            assert_eq!(told.borrow().len(), 1);
        });
    }

    #[test]
    fn many_places_are_reported_before_the_second_is_over_and_none_is_lost() {
        recorded(async |reports, told| {
            for call in 0..=PLACES_MAX {
                let call = CallId::try_from(call).ok();
                drop(reports.begin(("a.example", 443), call, ConnectionVerdict::Allowed));
            }
            assert_eq!(told.borrow().len(), PLACES_MAX);
            reports.finish();
            assert_eq!(told.borrow().len(), PLACES_MAX + 1);
        });
    }
}
