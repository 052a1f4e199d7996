//! Memory of the functions.

use std::alloc::System;

use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::GlobalAllocSource;

/// Allocator for the program of a function, as its `#[global_allocator]`. A start pays for each page of memory that it touches
/// first: this allocator lays what is small close together, in blocks of 1 MiB that it has from the system. A function runs one
/// thread, and few beside it for moments, so that the lock is free nearly always.
pub type Allocator = TalcLock<RawSpinlock, GlobalAllocSource<System>>;

/// The allocator before anything is allocated.
pub const fn allocator() -> Allocator {
    TalcLock::new(GlobalAllocSource::new(System))
}
