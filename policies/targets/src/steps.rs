//! Counts steps, in tests only: what reads a model's input promises a bound on them, and a test reaches it.

/// Adds to the steps of this thread.
#[inline(always)]
pub(crate) fn count(_steps: usize) {
    #[cfg(test)]
    COUNTED.set(COUNTED.get() + _steps);
}

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The steps that `work` takes, and what it returns.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNTED.get();
    let result = work();
    (COUNTED.get() - before, result)
}
