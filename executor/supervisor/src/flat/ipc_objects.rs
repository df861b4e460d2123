//! Semaphores and message queues of System V where the session has no IPC namespace: those that programs of one call have made, for
//! these programs alone. They end with the call.
//!
//! The machine knows them by a number only: keys are this supervisor's, and none but those of the call are found. Operations on
//! them block, undo themselves at a process's end and are interrupted by signals, so the kernel goes on with those calls. All that is
//! decided about is a number in a register. Unlike segments they cannot be marked for removal while they are used. So each first
//! process keeps a record of them that the warden can read, which removes them if that process is killed.

use crate::object::errno;
use executor_sys::ipc_object::{IpcKind, IpcObject};
use nix::Result;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Maximum number of sets of semaphores of a call.
const SETS_MAX: usize = 64;
/// Maximum number of semaphores in all of them.
const SEMAPHORES_MAX: i32 = 4096;
/// Maximum number of queues of a call. Each holds what the machine lets a queue hold, mostly 16 KiB.
const QUEUES_MAX: usize = 16;
/// Maximum number of both that a call makes in all. Far fewer than after which the kernel uses a number again.
const MADE_MAX: u32 = 4096;

/// Bytes of an object in a record.
const ENTRY_LEN: usize = 8;

/// The objects of a first process that exist, in memory that it shares with the warden.
pub struct IpcRecord(File);

impl IpcRecord {
    /// The record of a first process that has made nothing yet.
    ///
    /// # Errors
    /// The kernel's (`memfd_create`).
    pub fn new() -> io::Result<Self> {
        Ok(Self(memfd_create("objects", MFdFlags::MFD_CLOEXEC)?.into()))
    }

    /// A handle on the same record, for the other process.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub fn share(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// The descriptor that a cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn write<'a>(&self, objects: impl Iterator<Item = &'a IpcObject>) -> io::Result<()> {
        let bytes: Vec<u8> = objects.flat_map(encode).collect();
        self.0.write_all_at(&bytes, 0)?;
        self.0.set_len(bytes.len() as u64)
    }

    /// Takes over what a process has left: dropping it removes it.
    fn left(&self) -> Vec<IpcObject> {
        let mut bytes = [0; (SETS_MAX + QUEUES_MAX) * ENTRY_LEN];
        let length = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        let entries = bytes[..length].chunks_exact(ENTRY_LEN);
        entries.filter_map(decode).collect()
    }
}

fn encode(object: &IpcObject) -> [u8; ENTRY_LEN] {
    let kind: i32 = match object.kind() {
        IpcKind::Semaphores => 1,
        IpcKind::Queue => 2,
    };
    let [a, b, c, d] = kind.to_le_bytes();
    let [e, f, g, h] = object.id().to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

fn decode(entry: &[u8]) -> Option<IpcObject> {
    let number = |at: usize| {
        let bytes = entry.get(at..at + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    let kind = match number(0)? {
        1 => IpcKind::Semaphores,
        2 => IpcKind::Queue,
        _ => return None,
    };
    Some(IpcObject::left(kind, number(4)?))
}

/// The records of a session's first processes, in its warden.
#[derive(Default)]
pub struct IpcRecords(Vec<(i32, IpcRecord)>);

impl IpcRecords {
    /// Adds the record of the first process `pid`.
    pub fn add(&mut self, pid: i32, record: IpcRecord) {
        self.0.push((pid, record));
    }

    /// Removes from the machine what the process `pid`, which has ended, has left.
    pub fn end(&mut self, pid: i32) {
        for (_, record) in self.0.extract_if(.., |(known, _)| *known == pid) {
            drop(record.left());
        }
    }

    /// Ends the records of all cells, when none of them is left.
    pub fn end_all(&mut self) {
        for (_, record) in self.0.drain(..) {
            drop(record.left());
        }
    }
}

/// The objects of a call.
pub(crate) struct IpcObjects {
    /// Without one, nothing can be made: nobody would remove it.
    record: Option<Rc<IpcRecord>>,
    list: Vec<KnownIpcObject>,
    made: u32,
}

struct KnownIpcObject {
    key: i32,
    /// How many semaphores the set has; of a queue 0.
    count: i32,
    object: IpcObject,
}

impl IpcObjects {
    /// Those of a call that has made nothing yet.
    pub(crate) fn new(record: Option<Rc<IpcRecord>>) -> Self {
        Self {
            record,
            list: Vec::new(),
            made: 0,
        }
    }

    /// Finds or makes an object; `count` is the number of semaphores, for a queue 0.
    pub(crate) fn get(&mut self, kind: IpcKind, key: i32, count: i32, flags: i32) -> Result<i32> {
        let known = self
            .of(kind)
            .find(|known| known.key == key)
            .filter(|_| key != libc::IPC_PRIVATE);
        match known {
            Some(_) if flags & libc::IPC_CREAT != 0 && flags & libc::IPC_EXCL != 0 => {
                Err(Errno::EEXIST)
            }
            Some(known) if count < 0 || count > known.count => Err(Errno::EINVAL),
            Some(known) => Ok(known.object.id()),
            None if key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0 => {
                self.make(kind, key, count)
            }
            None => Err(Errno::ENOENT),
        }
    }

    fn make(&mut self, kind: IpcKind, key: i32, count: i32) -> Result<i32> {
        let record = self.record.clone().ok_or(Errno::EPERM)?;
        let others = self.of(kind).count();
        let has_room = match kind {
            IpcKind::Semaphores if count <= 0 => return Err(Errno::EINVAL),
            IpcKind::Semaphores => {
                let used: i32 = self.list.iter().map(|known| known.count).sum();
                others < SETS_MAX && count <= SEMAPHORES_MAX - used
            }
            IpcKind::Queue => others < QUEUES_MAX,
        };
        if !has_room || self.made >= MADE_MAX {
            return Err(Errno::ENOSPC);
        }
        let object = match kind {
            IpcKind::Semaphores => IpcObject::semaphores(count),
            IpcKind::Queue => IpcObject::queue(),
        };
        let object = object.map_err(errno)?;
        let id = object.id();
        self.made += 1;
        let known = self.list.iter().map(|known| &known.object);
        // Without an entry it is dropped, and with that removed.
        record.write(known.chain([&object])).map_err(errno)?;
        self.list.push(KnownIpcObject { key, count, object });
        Ok(id)
    }

    /// Whether it is an object of the call.
    ///
    /// # Errors
    /// `EINVAL` if it is not.
    pub(crate) fn check(&self, kind: IpcKind, id: i32) -> Result<()> {
        self.position(kind, id).map(drop)
    }

    pub(crate) fn remove(&mut self, kind: IpcKind, id: i32) -> Result<()> {
        let at = self.position(kind, id)?;
        drop(self.list.remove(at));
        self.write();
        Ok(())
    }

    /// Removes all, when the call has ended.
    pub(crate) fn remove_all(&mut self) {
        if !self.list.is_empty() {
            self.list.clear();
            self.write();
        }
    }

    /// The kernel's description of an object, as programs of the call are to see it.
    pub(crate) fn state(&self, kind: IpcKind, id: i32) -> Result<Vec<u8>> {
        let known = &self.list[self.position(kind, id)?];
        known.object.state(known.key).map_err(errno)
    }

    /// An entry that stays has a number that leads nowhere.
    fn write(&self) {
        let objects = self.list.iter().map(|known| &known.object);
        self.record
            .iter()
            .for_each(|record| drop(record.write(objects.clone())));
    }

    fn of(&self, kind: IpcKind) -> impl Iterator<Item = &KnownIpcObject> {
        self.list
            .iter()
            .filter(move |known| known.object.kind() == kind)
    }

    fn position(&self, kind: IpcKind, id: i32) -> Result<usize> {
        let is_it = |known: &KnownIpcObject| known.object.kind() == kind && known.object.id() == id;
        self.list.iter().position(is_it).ok_or(Errno::EINVAL)
    }
}

impl Drop for IpcObjects {
    fn drop(&mut self) {
        self.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IpcKind::{Queue, Semaphores};

    const NEW: i32 = libc::IPC_CREAT | libc::IPC_EXCL;

    #[test]
    fn keys_and_bounds_are_those_of_the_call() {
        let record = Rc::new(IpcRecord::new().unwrap());
        let mut objects = IpcObjects::new(Some(record.clone()));
        assert_eq!(objects.get(Semaphores, 7, 0, 0), Err(Errno::ENOENT));
        let set = objects.get(Semaphores, 7, 3, libc::IPC_CREAT).unwrap();
        assert_eq!(objects.get(Semaphores, 7, 3, 0), Ok(set));
        assert_eq!(objects.get(Semaphores, 7, 3, NEW), Err(Errno::EEXIST));
        assert_eq!(objects.get(Semaphores, 7, 4, 0), Err(Errno::EINVAL));
        assert_eq!(objects.get(Semaphores, 8, 0, NEW), Err(Errno::EINVAL));
        assert_eq!(objects.get(Semaphores, 8, -1, NEW), Err(Errno::EINVAL));
        // Another kind has keys of its own.
        assert_eq!(objects.get(Queue, 7, 0, 0), Err(Errno::ENOENT));
        let queue = objects.get(Queue, 7, 0, NEW).unwrap();
        let other = objects.get(Queue, libc::IPC_PRIVATE, 0, 0).unwrap();
        assert_ne!(objects.get(Queue, libc::IPC_PRIVATE, 0, 0), Ok(other));
        assert_eq!(objects.check(Queue, i32::MAX), Err(Errno::EINVAL));
        assert_eq!(objects.check(Queue, queue), Ok(()));
        assert_eq!(objects.remove(Queue, queue), Ok(()));
        assert_eq!(objects.remove(Queue, queue), Err(Errno::EINVAL));
        assert_eq!(objects.get(Queue, 7, 0, 0), Err(Errno::ENOENT));
        let all = SEMAPHORES_MAX - 3;
        let result = objects.get(Semaphores, 8, all + 1, NEW);
        assert_eq!(result, Err(Errno::ENOSPC));
        let large = objects.get(Semaphores, 8, all, NEW).unwrap();
        objects.remove(Semaphores, large).unwrap();
        for (kind, count, max) in [(Semaphores, 1, SETS_MAX), (Queue, 0, QUEUES_MAX)] {
            while objects.of(kind).count() < max {
                objects.get(kind, libc::IPC_PRIVATE, count, 0).unwrap();
            }
            let result = objects.get(kind, libc::IPC_PRIVATE, count, 0);
            assert_eq!(result, Err(Errno::ENOSPC));
        }
    }

    #[test]
    fn ipc_objects_left_behind_are_recorded_and_removed() {
        let record = Rc::new(IpcRecord::new().unwrap());
        let mut objects = IpcObjects::new(Some(record.clone()));
        let removed = objects.get(Queue, 1, 0, NEW).unwrap();
        let set = objects.get(Semaphores, 1, 2, NEW).unwrap();
        let queue = objects.get(Queue, 2, 0, NEW).unwrap();
        objects.remove(Queue, removed).unwrap();
        // Simulates a process that is killed.
        std::mem::forget(std::mem::take(&mut objects.list));
        let exists = |kind, id| {
            let object = IpcObject::left(kind, id);
            let exists = object.state(0).is_ok();
            std::mem::forget(object);
            exists
        };
        assert!(exists(Semaphores, set) && exists(Queue, queue) && !exists(Queue, removed));
        let mut records = IpcRecords::default();
        records.add(1, record.share().unwrap());
        records.end(2);
        assert!(exists(Semaphores, set) && exists(Queue, queue));
        records.end(1);
        assert!(!exists(Semaphores, set) && !exists(Queue, queue));
    }

    #[test]
    fn the_description_has_the_key_of_the_call() {
        let record = Rc::new(IpcRecord::new().unwrap());
        let mut objects = IpcObjects::new(Some(record.clone()));
        let key = 0x0102_0304;
        for (kind, count) in [(Semaphores, 5), (Queue, 0)] {
            let id = objects.get(kind, key, count, NEW).unwrap();
            let state = objects.state(kind, id).unwrap();
            assert_eq!(state[..4], key.to_ne_bytes());
        }
    }

    #[test]
    fn without_a_record_nothing_is_made() {
        let mut objects = IpcObjects::new(None);
        assert_eq!(objects.get(Queue, 0, 0, NEW), Err(Errno::EPERM));
    }
}
