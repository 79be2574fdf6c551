//! The charges of one request together, all or nothing.
//!
//! The shards of all its keys are locked in the order of their numbers, every charge is decided at one moment, and nothing is
//! written before there is room for all new entries.

use tollkeeper_core::{Change, Charge, Decision, Receipt, State, Timestamp, decide_all, is_denied};

use super::super::identity::CLASSES;
use super::super::overflow;
use super::super::shard::{Granted, Locked, NoRoom, Place, Seen, Thinning, Write};
use super::{Full, Table};
use crate::clock::Clock;

impl Table {
    /// Decides several charges: all or nothing.
    pub(crate) fn charge_all(&self, charges: &[Charge], clock: &Clock) -> Result<Vec<Decision>, Full> {
        if let [charge] = charges {
            return Ok(vec![self.charge(self.place_of(charge.bucket()), charge.cost, clock)?]);
        }
        Ok(self.charge_together(charges, clock, false)?.0)
    }

    /// The same, with receipts of the charges; empty when denied.
    pub(crate) fn reserve_all(
        &self,
        charges: &[Charge],
        clock: &Clock,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        self.charge_together(charges, clock, true)
    }

    fn charge_together(
        &self,
        charges: &[Charge],
        clock: &Clock,
        with_receipts: bool,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        let places: Vec<Place<'_>> = charges.iter().map(|charge| self.place_of(charge.bucket())).collect();
        let mut asked = Asked { charges, places, lacking: vec![None; charges.len()], thinning: Thinning::Refused };
        loop {
            match self.try_charge_all(&asked, clock, with_receipts) {
                Err(Full { lacking: NoRoom::Log | NoRoom::Growth | NoRoom::Slots, .. })
                    if asked.thinning == Thinning::Refused =>
                {
                    self.drop_logs(clock.now());
                    asked.thinning = Thinning::Allowed;
                }
                Err(Full { charge, lacking: lacking @ (NoRoom::Key | NoRoom::Log) })
                    if asked.lacking[charge].is_none() =>
                {
                    asked.lacking[charge] = Some(lacking);
                }
                other => {
                    self.levels.used_by(self.room.keys());
                    return other;
                }
            }
        }
    }

    fn try_charge_all(
        &self,
        asked: &Asked<'_>,
        clock: &Clock,
        with_receipts: bool,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        let charges = asked.charges;
        let mut shards = self.lock_all(asked);
        let now = clock.now();
        shards.shards.iter_mut().for_each(|(_, shard)| shard.decided_at(now));
        let spots = shards.spots(asked)?;
        let seen: Vec<Seen<'_>> = spots.iter().map(|spot| shards.of(*spot).seen_of(spot.place.id)).collect();
        let decided = decide_all(charges, seen.iter().map(AsRef::<State>::as_ref), now);
        drop(seen);
        for (charge, (spot, (_, change))) in spots.iter().zip(&decided).enumerate() {
            // A charge that writes nothing needs no room, but a new key without it gets the answer that it would get.
            let shard = shards.of_mut(*spot);
            if *change == Change::None && spot.kind == Kind::Own && shard.find(spot.place.id).is_none() {
                shard.has_room(spot.place, now).map_err(|lacking| Full { charge, lacking })?;
            }
        }
        let mut receipts = Vec::new();
        if with_receipts && !is_denied(charges.iter().zip(decided.iter().map(|(decision, _)| decision))) {
            let taken = charges.iter().zip(&decided).zip(&spots);
            receipts.extend(taken.map(|((charge, (decision, change)), spot)| {
                let receipt = Receipt::of(charge.cost, decision, change, now)?;
                Some(match spot.kind {
                    Kind::Own => receipt,
                    Kind::Shared => overflow::without_refund(charge.quota().algorithm(), receipt),
                })
            }));
        }
        let mut decisions = Vec::with_capacity(charges.len());
        let mut writes = Vec::with_capacity(charges.len());
        for (charge, ((decision, change), spot)) in decided.into_iter().zip(&spots).enumerate() {
            decisions.push(decision);
            if change != Change::None {
                writes.push((charge, *spot, Write { place: spot.place, change }));
            }
        }
        shards.commit_all(writes, asked.thinning, now)?;
        let shared = spots.iter().zip(&asked.lacking).filter(|(spot, _)| spot.kind == Kind::Shared);
        shared.for_each(|(_, lacking)| self.overflow.count(lacking.unwrap_or(NoRoom::Key)));
        Ok((decisions, receipts))
    }

    fn lock_all(&self, asked: &Asked<'_>) -> LockedShards<'_> {
        let mut numbers: Vec<usize> = asked.places.iter().map(|place| self.shard_of(place.id)).collect();
        // Every request locks in this order, the shared buckets last, so there is no deadlock.
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |shard| (shard, self.lock(shard));
        let mut shards: Vec<_> = numbers.into_iter().map(lock).collect();
        if asked.lacking.iter().any(Option::is_some) {
            shards.push((LockedShards::SHARED, self.overflow.lock()));
        }
        LockedShards { table: self, shards }
    }
}

/// The charges of one request.
struct Asked<'r> {
    charges: &'r [Charge],
    /// The bucket of each.
    places: Vec<Place<'r>>,
    /// What was missing, if it found no room for its own bucket.
    lacking: Vec<Option<NoRoom>>,
    thinning: Thinning,
}

/// Where a charge is counted.
#[derive(Clone, Copy, Debug)]
struct Spot<'r> {
    place: Place<'r>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In its own bucket.
    Own,
    /// In a shared bucket.
    Shared,
}

/// The shards of one request.
struct LockedShards<'t> {
    table: &'t Table,
    shards: Vec<(usize, Locked<'t>)>,
}

impl<'t> LockedShards<'t> {
    /// Stands for the shared buckets.
    const SHARED: usize = usize::MAX;

    fn position(&self, spot: Spot<'_>) -> usize {
        let shard = match spot.kind {
            Kind::Own => self.table.shard_of(spot.place.id),
            Kind::Shared => Self::SHARED,
        };
        self.shards.partition_point(|(number, _)| *number < shard)
    }

    fn of(&self, spot: Spot<'_>) -> &Locked<'t> {
        &self.shards[self.position(spot)].1
    }

    fn of_mut(&mut self, spot: Spot<'_>) -> &mut Locked<'t> {
        let position = self.position(spot);
        &mut self.shards[position].1
    }

    /// Where each charge is counted. A key that got its own bucket since is counted there, and two keys of one
    /// request never in the same bucket: it would be charged only once for both.
    fn spots<'r>(&self, asked: &Asked<'r>) -> Result<Vec<Spot<'r>>, Full> {
        let mut spots: Vec<Spot<'r>> = Vec::with_capacity(asked.places.len());
        for (charge, (place, lacking)) in asked.places.iter().zip(&asked.lacking).enumerate() {
            let own = Spot { place: *place, kind: Kind::Own };
            let Some(lacking) = lacking.filter(|_| self.of(own).keeps(*place).is_none()) else {
                spots.push(own);
                continue;
            };
            let mut shared = (0..CLASSES).map(|nth| self.table.shared_place(*place, nth));
            let is_free = |place: &Place<'_>| spots.iter().all(|spot| spot.place.id != place.id);
            let place = shared.find(is_free).ok_or(Full { charge, lacking })?;
            spots.push(Spot { place, kind: Kind::Shared });
        }
        Ok(spots)
    }

    /// Applies all changes, or none.
    fn commit_all(
        &mut self,
        writes: Vec<(usize, Spot<'_>, Write<'_>)>,
        thinning: Thinning,
        now: Timestamp,
    ) -> Result<(), Full> {
        let mut granted: Vec<(Spot<'_>, Granted)> = Vec::with_capacity(writes.len());
        for (charge, spot, write) in &writes {
            let shard = self.of(*spot);
            match shard.grant(shard.find(write.place.id), write, thinning) {
                Ok(bytes) => granted.push((*spot, bytes)),
                Err(lacking) => {
                    self.take_back(&granted);
                    return Err(Full { charge: *charge, lacking });
                }
            }
        }
        // Eviction may drop idle entries of this very request, so whether an entry is new is checked again
        // afterwards.
        let is_new = |spot: &Spot<'_>| self.of(*spot).find(spot.place.id).is_none();
        let new: Vec<Spot<'_>> = writes.iter().map(|(_, spot, _)| *spot).filter(is_new).collect();
        for spot in &new {
            self.of_mut(*spot).relieve_for(spot.place, new.len(), now);
        }
        let made = self.insert_and_overwrite(writes, &granted);
        self.take_back(&granted);
        made
    }

    fn take_back(&self, granted: &[(Spot<'_>, Granted)]) {
        granted.iter().for_each(|(spot, granted)| self.of(*spot).take_back(*granted));
    }

    /// New entries first: they may find no room, and then the ones already inserted are removed again.
    fn insert_and_overwrite(
        &mut self,
        writes: Vec<(usize, Spot<'_>, Write<'_>)>,
        granted: &[(Spot<'_>, Granted)],
    ) -> Result<(), Full> {
        let mut inserted: Vec<Spot<'_>> = Vec::new();
        let mut known = Vec::new();
        for ((charge, spot, write), (_, granted)) in writes.into_iter().zip(granted) {
            let shard = self.of_mut(spot);
            if shard.find(spot.place.id).is_some() {
                known.push((spot, write, *granted));
            } else if let Err(lacking) = shard.insert(write, *granted) {
                for spot in inserted {
                    let shard = self.of_mut(spot);
                    if let Some(at) = shard.find(spot.place.id) {
                        shard.remove(at);
                    }
                }
                return Err(Full { charge, lacking });
            } else {
                inserted.push(spot);
            }
        }
        for (spot, write, granted) in known {
            let shard = self.of_mut(spot);
            if let Some(at) = shard.find(spot.place.id) {
                shard.overwrite(at, write, granted);
            }
        }
        Ok(())
    }
}
