//! Questions about repositories to a worker, after calls, one after the other. Nobody waits for an answer: the broker goes on
//! with other calls, and calls [`PendingQuestions::advance`] when the worker's socket is ready, or its time is over.

use crate::project_repository::ProjectRepository;
use crate::questions::{AnsweringWorker, TIMEOUT, repository_answer};
use executor_spec::worker::{IndexFault, RepositoryAnswer};
use nix::poll::PollFlags;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long each try for an answer may take. On a busy machine a worker may be late once; and if it has stopped, another one answers soon.
const TRIES: [Duration; 2] = [Duration::from_secs(1), TIMEOUT];

/// Workers that are kept: for the indexes below a directory, and for the last commit of one repository there.
const WORKERS: usize = 2;

/// Starts a worker for questions about a repository.
pub(crate) type StartWorker<'s> = dyn Fn(&ProjectRepository) -> io::Result<AnsweringWorker> + 's;

/// A question about one repository.
#[derive(Clone, Debug)]
pub struct RepositoryQuestion {
    pub(crate) repository: ProjectRepository,
    pub files: FilesAsked,
}

/// The files of which it is asked what the last commit has.
#[derive(Clone, Debug)]
pub enum FilesAsked {
    /// These files, each with its absolute path.
    Files(Vec<PathBuf>),
    /// The files with protected names in the index. There is no question while there is no time for it.
    OfIndex,
}

/// The end of a question.
#[derive(Debug)]
pub enum RepositoryReply {
    Answered(Box<RepositoryAnswer>),
    /// No worker speaks of it.
    Failed,
    /// There was no time for it.
    NotAsked,
}

/// Questions of which some may still have no answer.
#[derive(Debug, Default)]
pub(crate) struct PendingQuestions {
    left: VecDeque<RepositoryQuestion>,
    answers: Vec<RepositoryReply>,
    /// The first one is asked; the other one may be asked again.
    workers: VecDeque<AskedWorker>,
    try_number: usize,
    /// The part of the first question that is asked now, once a worker has it.
    current: Option<CurrentQuestion>,
    /// How long indexes are asked about, and until when, once the first of them is reached.
    index_time: Duration,
    indexes_until: Option<Instant>,
}

/// A worker, and the directories that it may read.
#[derive(Debug)]
struct AskedWorker {
    answerer: AnsweringWorker,
    project: PathBuf,
    common: PathBuf,
}

#[derive(Debug)]
struct CurrentQuestion {
    files: usize,
    until: Instant,
    /// The files of the index, where this asks what the last commit has of it.
    index: Option<RepositoryAnswer>,
}

impl PendingQuestions {
    pub(crate) fn new(
        questions: impl IntoIterator<Item = RepositoryQuestion>,
        index_time: Duration,
    ) -> Self {
        Self {
            left: questions.into_iter().collect(),
            index_time,
            ..Self::default()
        }
    }

    /// Goes on as far as that is possible without waiting; whether all questions have an answer, or will have none.
    pub(crate) fn advance(&mut self, start: &StartWorker) -> bool {
        while let Some(question) = self.left.pop_front() {
            match self.reply_to(&question, start) {
                Some(reply) => self.next(reply),
                None => {
                    self.left.push_front(question);
                    return false;
                }
            }
        }
        self.workers.clear();
        true
    }

    /// The reply to a question; `None` while its worker must be waited for.
    fn reply_to(
        &mut self,
        question: &RepositoryQuestion,
        start: &StartWorker,
    ) -> Option<RepositoryReply> {
        while self.has_time(question) {
            match self.go_on(question, start) {
                Ok(answer) => return Some(self.with_first_index(answer?)),
                Err(_) => {
                    self.workers.pop_front();
                    self.current = None;
                    self.try_number += 1;
                    if self.try_number == TRIES.len() {
                        return Some(RepositoryReply::Failed);
                    }
                }
            }
        }
        Some(RepositoryReply::NotAsked)
    }

    /// The answers, in the order of the questions.
    pub(crate) fn into_answers(self) -> impl Iterator<Item = RepositoryReply> {
        self.answers.into_iter()
    }

    /// The descriptor that must become ready before it can go on.
    pub(crate) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let worker = self.workers.front()?;
        Some(worker.answerer.waits_for())
    }

    /// When it goes on in any case.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.until)
    }

    /// Waits until it can go on, at the end of a session.
    pub(crate) fn wait(&self) {
        if let (Some(worker), Some(until)) = (self.workers.front(), self.deadline()) {
            // Why it could not wait shows when it goes on.
            let _ = worker.answerer.wait(until);
        }
    }

    /// Whether there is time to begin with a question; one that has begun is finished.
    fn has_time(&mut self, question: &RepositoryQuestion) -> bool {
        let (now, time) = (Instant::now(), self.index_time);
        match question.files {
            FilesAsked::Files(_) => true,
            FilesAsked::OfIndex => {
                let until = *self.indexes_until.get_or_insert(now + time);
                self.current.is_some() || self.try_number > 0 || now <= until
            }
        }
    }

    fn next(&mut self, reply: RepositoryReply) {
        self.answers.push(reply);
        (self.current, self.try_number) = (None, 0);
    }

    /// Asks, or takes what the worker answers; `None` while it must be waited for.
    fn go_on(
        &mut self,
        question: &RepositoryQuestion,
        start: &StartWorker,
    ) -> io::Result<Option<RepositoryAnswer>> {
        if self.current.is_none() {
            let files = match &question.files {
                FilesAsked::Files(files) => files.as_slice(),
                FilesAsked::OfIndex => &[],
            };
            self.put(&question.repository, files, None, start)?;
        }
        let (Some(worker), Some(current)) = (self.workers.front(), &self.current) else {
            return Ok(None);
        };
        let Some(answer) = worker.answerer.advance()? else {
            return match current.until <= Instant::now() {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => Ok(None),
            };
        };
        let answer = repository_answer(&answer, current.files)?;
        match &question.files {
            FilesAsked::OfIndex if current.index.is_none() => {
                self.ask_of_last_commit(&question.repository, answer, start)
            }
            FilesAsked::OfIndex | FilesAsked::Files(_) => Ok(Some(answer)),
        }
    }

    /// Asks what the last commit has of the protected names in an index. Most indexes have none. One with a name outside is not used,
    /// and that name says why.
    fn ask_of_last_commit(
        &mut self,
        of: &ProjectRepository,
        index: RepositoryAnswer,
        start: &StartWorker,
    ) -> io::Result<Option<RepositoryAnswer>> {
        let names = index.index.iter().flatten();
        let files = names.map(|name| of.project.join(OsStr::from_bytes(&name.path)));
        let files: Vec<PathBuf> = files.collect();
        if files.is_empty() || matches!(index.fault, Some(IndexFault::Outside(_))) {
            return Ok(Some(index));
        }
        // Branches and objects lie in the repository's common directory, which a worker gets when it starts.
        let of = ProjectRepository {
            common: common_of(&of.own).to_owned(),
            ..of.clone()
        };
        self.put(&of, &files, Some(index), start)?;
        Ok(None)
    }

    /// Asks the worker that may read these directories, which is started if there is none.
    fn put(
        &mut self,
        of: &ProjectRepository,
        files: &[PathBuf],
        index: Option<RepositoryAnswer>,
        start: &StartWorker,
    ) -> io::Result<()> {
        let until = Instant::now() + TRIES[self.try_number];
        let reads =
            |worker: &AskedWorker| worker.project == of.project && worker.common == of.common;
        let known = self.workers.iter().position(reads);
        let worker = match known.and_then(|known| self.workers.remove(known)) {
            Some(worker) => worker,
            None => AskedWorker {
                answerer: start(of)?,
                project: of.project.clone(),
                common: of.common.clone(),
            },
        };
        let sent = worker.answerer.put_repository(of, files);
        self.workers.push_front(worker);
        self.workers.truncate(WORKERS);
        sent?;
        self.current = Some(CurrentQuestion {
            files: files.len(),
            until,
            index,
        });
        Ok(())
    }

    /// The last answer, with what the first one said of the index.
    fn with_first_index(&mut self, answer: RepositoryAnswer) -> RepositoryReply {
        let index = self.current.take().and_then(|current| current.index);
        let answer = match index {
            Some(index) => RepositoryAnswer {
                files: answer.files,
                ..index
            },
            None => answer,
        };
        RepositoryReply::Answered(Box::new(answer))
    }
}

/// The directory with the branches and objects of a repository: `worktrees/NAME` has those of the directory above.
fn common_of(own: &Path) -> &Path {
    let worktrees = own
        .parent()
        .filter(|above| above.file_name() == Some(OsStr::new("worktrees")));
    worktrees.and_then(Path::parent).unwrap_or(own)
}
