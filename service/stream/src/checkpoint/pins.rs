//! What the inputs of a job must keep for it.
//!
//! A position needs T(above) and T(below); later positions have a `below` that is either the same or a cut that is still to come. So with the floor at
//! a cut that a committed epoch has seen, and the two sequences of its position as exact pins where the floor does not keep them, everything that this
//! or a later epoch can ask for is kept (B4). Moving a pin writes to the bucket, so the floor follows only every `pin_refresh`.

use std::sync::Arc;

use millstream_storage::{Pin, PinOwner, Region};
use millstream_types::{InputId, JobId, Pos, Seq};

use crate::{
    StreamError,
    executor::backfill::{machine::Position, progress::RegionProgress},
};

/// The pin for a committed position; `floor` is the cut of its epoch, `None` for a job that will not run soon.
pub(crate) fn pin_for(position: Option<&Position>, floor: Option<Seq>) -> Pin {
    let mut exact = Vec::new();
    if let Some(p) = position {
        exact.extend(p.above.filter(|_| p.at != Pos::End));
        exact.push(p.below);
    }
    exact.retain(|s| floor.is_none_or(|f| *s < f));
    exact.sort();
    exact.dedup();
    Pin { exact, floor }
}

#[derive(Debug)]
pub(crate) struct PinKeeper {
    owner: PinOwner,
    refresh_ms: u64,
    regions: Vec<(Arc<dyn Region>, u64)>,
}

impl PinKeeper {
    pub(crate) fn new(job: JobId, input: InputId, refresh_ms: u64, regions: Vec<Arc<dyn Region>>) -> Self {
        Self { owner: PinOwner { job, input }, refresh_ms, regions: regions.into_iter().map(|r| (r, 0)).collect() }
    }

    /// Before the first read of a run: the stored positions exactly, and everything from now on. Returns when it is durable.
    pub(crate) async fn start(&mut self, stored: &[RegionProgress], now_ms: u64) -> Result<(), StreamError> {
        for (region, at) in &mut self.regions {
            let position = stored.iter().find(|p| p.region == region.id()).map(|p| &p.position);
            region.pin(self.owner, pin_for(position, Some(region.applied()))).await?;
            *at = now_ms;
        }
        Ok(())
    }

    /// After a commit. `cuts` are those of the committed epoch, in the order of `progress`. A pin that cannot be moved keeps too much, never too little.
    pub(crate) async fn committed(&mut self, progress: &[RegionProgress], cuts: &[Seq], now_ms: u64) {
        for (region, at) in &mut self.regions {
            let Some(i) = progress.iter().position(|p| p.region == region.id()) else { continue };
            if now_ms < *at + self.refresh_ms {
                continue;
            }
            *at = now_ms;
            if let Err(e) = region.pin(self.owner, pin_for(Some(&progress[i].position), Some(cuts[i]))).await {
                tracing::warn!(job = %self.owner.job, region = %region.id(), error = %millstream_types::error::chain(&e), "pin not moved, the old one stays");
            }
        }
    }
}

/// For a job that stops: its positions exactly, and nothing after them.
pub(crate) async fn freeze(job: JobId, input: InputId, regions: &[Arc<dyn Region>], progress: &[RegionProgress]) {
    for region in regions {
        let Some(p) = progress.iter().find(|p| p.region == region.id()) else { continue };
        if let Err(e) = region.pin(PinOwner { job, input }, pin_for(Some(&p.position), None)).await {
            tracing::warn!(job = %job, region = %region.id(), error = %millstream_types::error::chain(&e), "pin not frozen, the old one stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_keeps_what_the_floor_does_not() {
        let p = |above, below, at| Position { above, below: Seq(below), at };
        let at = Pos::At(millstream_types::Key(vec![1]));
        assert_eq!(pin_for(None, Some(Seq(9))), Pin { exact: vec![], floor: Some(Seq(9)) });
        assert_eq!(pin_for(Some(&p(None, 9, Pos::End)), Some(Seq(9))), Pin { exact: vec![], floor: Some(Seq(9)) });
        assert_eq!(
            pin_for(Some(&p(Some(Seq(3)), 7, at.clone())), Some(Seq(9))),
            Pin { exact: vec![Seq(3), Seq(7)], floor: Some(Seq(9)) }
        );
        assert_eq!(pin_for(Some(&p(Some(Seq(3)), 7, Pos::End)), None), Pin { exact: vec![Seq(7)], floor: None });
    }
}
