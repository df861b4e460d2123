//! The tasks of one connection: they end with it.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use tokio::task::JoinSet;

/// Starts tasks of one connection on the local runtime.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<RefCell<JoinSet<()>>>);

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(async move {
            future.await;
        });
    }
}

/// Ends all tasks when it is dropped. Tasks have clones of [`Tasks`] themselves, so that this cannot be left to those.
#[derive(Default)]
pub(super) struct TaskOwner(pub Tasks);

impl Drop for TaskOwner {
    fn drop(&mut self) {
        drop(self.0.0.take());
    }
}
