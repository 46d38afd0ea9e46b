//! A look at the lengths of a request before it is decoded. The codecs reserve memory for as many elements as an array says it has; here every length is
//! compared with the bytes that are there, so that no sender can make the broker reserve more than a small multiple of what it sent.

use kafka_protocol::messages::ApiKey;

#[derive(Debug)]
pub(super) struct Shape {
    /// Compact lengths and tagged fields from this version on.
    pub(super) flexible_from: i16,
    pub(super) fields: &'static [Field],
}

#[derive(Debug)]
pub(super) struct Field {
    since: i16,
    until: i16,
    kind: Kind,
}

pub(super) const fn f(since: i16, until: i16, kind: Kind) -> Field {
    Field { since, until, kind }
}

#[derive(Debug)]
pub(super) enum Kind {
    Fixed(usize),
    Text,
    Data,
    /// An array of structs.
    Each(&'static [Field]),
    /// An array of simple values.
    Plain(&'static Kind),
}

/// A request has fewer; each tagged field costs a map entry.
const TAGGED_LIMIT: u32 = 64;
/// Elements of all arrays of a request together; each may become some 200 bytes.
const ELEMENT_LIMIT: usize = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misshapen {
    /// A length says more than there is.
    Short,
    TooMany,
    Unknown,
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
}

/// Whether all lengths in the body of a request (after its header) agree with the bytes.
pub(crate) fn check(api: ApiKey, version: i16, body: &[u8]) -> Result<(), Misshapen> {
    let shape = super::shape_table::of(api).ok_or(Misshapen::Unknown)?;
    let mut walk = Walk { rest: body, version, flexible: version >= shape.flexible_from, elements: 0 };
    walk.fields(shape.fields)
}

impl Walk<'_> {
    fn fields(&mut self, fields: &[Field]) -> Result<(), Misshapen> {
        for field in fields {
            if (field.since..=field.until).contains(&self.version) {
                self.value(&field.kind)?;
            }
        }
        if self.flexible { self.tagged() } else { Ok(()) }
    }

    fn value(&mut self, kind: &Kind) -> Result<(), Misshapen> {
        match kind {
            Kind::Fixed(n) => self.skip(*n),
            Kind::Text => {
                let n = if self.flexible { self.compact()? } else { i64::from(self.i16()?) };
                self.skip_signed(n)
            }
            Kind::Data => {
                let n = if self.flexible { self.compact()? } else { i64::from(self.i32()?) };
                self.skip_signed(n)
            }
            Kind::Each(fields) => self.array(|w| w.fields(fields)),
            Kind::Plain(kind) => self.array(|w| w.value(kind)),
        }
    }

    fn array(&mut self, each: impl Fn(&mut Self) -> Result<(), Misshapen>) -> Result<(), Misshapen> {
        let n = if self.flexible { self.compact()? } else { i64::from(self.i32()?) };
        let Ok(n) = usize::try_from(n) else { return Ok(()) };
        // Every element has at least one byte.
        if n > self.rest.len() {
            return Err(Misshapen::Short);
        }
        self.elements += n;
        if self.elements > ELEMENT_LIMIT {
            return Err(Misshapen::TooMany);
        }
        for _ in 0..n {
            each(self)?;
        }
        Ok(())
    }

    fn tagged(&mut self) -> Result<(), Misshapen> {
        let n = self.varint()?;
        if n > TAGGED_LIMIT {
            return Err(Misshapen::TooMany);
        }
        for _ in 0..n {
            self.varint()?;
            let size = self.varint()?;
            self.skip(size as usize)?;
        }
        Ok(())
    }

    fn skip(&mut self, n: usize) -> Result<(), Misshapen> {
        self.rest = self.rest.get(n..).ok_or(Misshapen::Short)?;
        Ok(())
    }

    /// -1 is null; what else is negative is for the codec to refuse.
    fn skip_signed(&mut self, n: i64) -> Result<(), Misshapen> {
        usize::try_from(n).map_or(Ok(()), |n| self.skip(n))
    }

    fn i16(&mut self) -> Result<i16, Misshapen> {
        let (n, rest) = self.rest.split_first_chunk::<2>().ok_or(Misshapen::Short)?;
        self.rest = rest;
        Ok(i16::from_be_bytes(*n))
    }

    fn i32(&mut self) -> Result<i32, Misshapen> {
        let (n, rest) = self.rest.split_first_chunk::<4>().ok_or(Misshapen::Short)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*n))
    }

    /// As the codec reads it: five bytes at most.
    fn varint(&mut self) -> Result<u32, Misshapen> {
        let mut value = 0u32;
        for i in 0..5 {
            let (byte, rest) = self.rest.split_first().ok_or(Misshapen::Short)?;
            self.rest = rest;
            value |= (u32::from(*byte) & 0x7f) << (i * 7);
            if *byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    fn compact(&mut self) -> Result<i64, Misshapen> {
        Ok(i64::from(self.varint()?) - 1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rand::{Rng, rngs::StdRng};

    use super::*;
    use crate::log::batch::tests::sample;

    struct Draw<'a> {
        out: Vec<u8>,
        version: i16,
        flexible: bool,
        random: &'a mut StdRng,
    }

    impl Draw<'_> {
        fn fields(&mut self, fields: &[Field]) {
            for field in fields {
                if (field.since..=field.until).contains(&self.version) {
                    self.value(&field.kind);
                }
            }
            if self.flexible {
                self.out.push(0);
            }
        }

        fn length(&mut self, n: usize, wide: bool) {
            match (self.flexible, wide) {
                (true, _) => {
                    let mut n = n as u32 + 1;
                    while n >= 0x80 {
                        self.out.push(n as u8 | 0x80);
                        n >>= 7;
                    }
                    self.out.push(n as u8);
                }
                (false, true) => self.out.extend_from_slice(&(n as i32).to_be_bytes()),
                (false, false) => self.out.extend_from_slice(&(n as i16).to_be_bytes()),
            }
        }

        /// Mostly few; sometimes many, which are the same names again and again.
        fn elements(&mut self) -> usize {
            if self.out.len() < 1000 && self.random.random_ratio(1, 200) {
                self.random.random_range(0..1000)
            } else {
                self.random.random_range(0..3)
            }
        }

        fn value(&mut self, kind: &Kind) {
            match kind {
                Kind::Fixed(n) => {
                    // Small numbers, -1, and extremes.
                    let fill = [0, 0, 0, 0xff, 0x7f][self.random.random_range(0..5)];
                    self.out.extend(std::iter::repeat_n(fill, n - 1));
                    let last = if fill == 0 { self.random.random_range(0..5) } else { 0xff };
                    self.out.push(last);
                }
                Kind::Text => {
                    let text = ["t", "u", "c", "", "consumer", "retention.ms", "1"][self.random.random_range(0..7)];
                    self.length(text.len(), false);
                    self.out.extend_from_slice(text.as_bytes());
                }
                Kind::Data => {
                    let n = self.random.random_range(0..90);
                    let data: Vec<u8> = if self.random.random_bool(0.5) {
                        // For Produce: a good batch, of nobody or of a producer that other requests may know.
                        let producer = (
                            self.random.random_range(-1..4),
                            self.random.random_range(0..2),
                            self.random.random_range(0..3),
                        );
                        sample(self.random.random_range(1..4), producer, self.random.random_bool(0.3), 0).to_vec()
                    } else {
                        (0..n).map(|_| self.random.random_range(0..4u8)).collect()
                    };
                    self.length(data.len(), true);
                    self.out.extend_from_slice(&data);
                }
                Kind::Each(fields) => {
                    let n = self.elements();
                    self.length(n, true);
                    (0..n).for_each(|_| self.fields(fields));
                }
                Kind::Plain(kind) => {
                    let n = self.elements();
                    self.length(n, true);
                    (0..n).for_each(|_| self.value(kind));
                }
            }
        }
    }

    /// A well-formed body with random content.
    pub(crate) fn random_body(api: ApiKey, version: i16, random: &mut StdRng) -> Vec<u8> {
        let shape = super::super::shape_table::of(api).unwrap();
        let mut draw = Draw { out: Vec::new(), version, flexible: version >= shape.flexible_from, random };
        draw.fields(shape.fields);
        assert_eq!(check(api, version, &draw.out), Ok(()));
        draw.out
    }

    #[test]
    fn an_array_that_promises_too_much_is_refused() {
        // Metadata 1: an array of two billion names in four bytes
        assert_eq!(check(ApiKey::Metadata, 1, &[0x7f, 0xff, 0xff, 0xff]), Err(Misshapen::Short));
        assert_eq!(check(ApiKey::Metadata, 12, &[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(Misshapen::Short));
        assert_eq!(check(ApiKey::Metadata, 1, &[0xff, 0xff, 0xff, 0xff]), Ok(()), "null");
    }

    #[test]
    fn every_served_api_has_a_shape() {
        for (api, _, _) in super::super::versions::SERVED {
            assert!(super::super::shape_table::of(*api).is_some(), "{api:?}");
        }
    }
}
