//! Counts steps, where debug assertions are on: what reads a model's input promises a bound on them, and a test reaches it.

/// Adds to the steps of this thread.
#[inline(always)]
pub fn count(_steps: usize) {
    #[cfg(debug_assertions)]
    COUNTED.set(COUNTED.get() + _steps);
}

#[cfg(debug_assertions)]
thread_local! {
    static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The steps that `work` takes, here and in the crates above, and what it returns.
#[cfg(debug_assertions)]
pub fn of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNTED.get();
    let result = work();
    (COUNTED.get() - before, result)
}
