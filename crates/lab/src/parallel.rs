//! Independent pieces of work on every core.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `f(0), ..., f(n - 1)`, computed on every core and returned in that order.
pub fn map<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(n);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(n)));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        return;
                    }
                    let value = f(i);
                    done.lock().expect("no worker panics holding it").push((i, value));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics holding it");
    done.sort_by_key(|&(i, _)| i);
    done.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_order() {
        assert_eq!(super::map(100, |i| i * i), (0..100).map(|i| i * i).collect::<Vec<_>>());
        assert!(super::map(0, |i| i).is_empty());
    }
}
