//! SQL types as users write them and as the catalog and manifests store them; each has exactly one Arrow type.

use std::{fmt, str::FromStr, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A column type. Stored as its text (`DECIMAL(12,2)`, `BIGINT[]`, `STRUCT(a BIGINT, b VARCHAR)`), so that no format depends on a library's types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SqlType {
    Boolean,
    SmallInt,
    Int,
    BigInt,
    Real,
    Double,
    /// Precision 1 to 76, scale 0 to precision. Up to 38 digits are Decimal128, from 39 Decimal256.
    Decimal(u8, i8),
    Varchar,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    /// JSON text, numbers kept as written.
    Jsonb,
    Array(Box<SqlType>),
    Struct(Vec<(String, SqlType)>),
    Map(Box<SqlType>, Box<SqlType>),
}

impl SqlType {
    pub fn arrow(&self) -> DataType {
        match self {
            SqlType::Boolean => DataType::Boolean,
            SqlType::SmallInt => DataType::Int16,
            SqlType::Int => DataType::Int32,
            SqlType::BigInt => DataType::Int64,
            SqlType::Real => DataType::Float32,
            SqlType::Double => DataType::Float64,
            SqlType::Decimal(p, s) if *p <= 38 => DataType::Decimal128(*p, *s),
            SqlType::Decimal(p, s) => DataType::Decimal256(*p, *s),
            SqlType::Varchar | SqlType::Jsonb => DataType::Utf8,
            SqlType::Bytea => DataType::Binary,
            SqlType::Date => DataType::Date32,
            SqlType::Time => DataType::Time64(TimeUnit::Microsecond),
            SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            SqlType::Array(t) => DataType::List(Arc::new(Field::new("item", t.arrow(), true))),
            SqlType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|(n, t)| Field::new(n, t.arrow(), true)).collect::<Fields>())
            }
            SqlType::Map(k, v) => {
                let entries =
                    Fields::from(vec![Field::new("keys", k.arrow(), false), Field::new("values", v.arrow(), true)]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }
        }
    }

    /// The type whose column can hold every value of `data_type` without loss, or `None` if there is none.
    ///
    /// Planner results use more Arrow types than SQL has (views, dictionaries, unsigned integers, nanoseconds): a value is cast to
    /// `SqlType::arrow` of the answer before it is stored.
    pub fn from_arrow(data_type: &DataType) -> Option<SqlType> {
        Some(match data_type {
            DataType::Boolean => SqlType::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => SqlType::SmallInt,
            DataType::Int32 | DataType::UInt16 => SqlType::Int,
            DataType::Int64 | DataType::UInt32 => SqlType::BigInt,
            DataType::UInt64 => SqlType::Decimal(20, 0),
            DataType::Float16 | DataType::Float32 => SqlType::Real,
            DataType::Float64 => SqlType::Double,
            DataType::Decimal32(p, s)
            | DataType::Decimal64(p, s)
            | DataType::Decimal128(p, s)
            | DataType::Decimal256(p, s) => SqlType::Decimal(*p, *s),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => SqlType::Varchar,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                SqlType::Bytea
            }
            DataType::Date32 | DataType::Date64 => SqlType::Date,
            DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
            DataType::Timestamp(_, None) => SqlType::Timestamp,
            DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
            DataType::Interval(_) => SqlType::Interval,
            DataType::Dictionary(_, v) => Self::from_arrow(v)?,
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) | DataType::ListView(f) => {
                SqlType::Array(Box::new(Self::from_arrow(f.data_type())?))
            }
            DataType::Struct(fields) => SqlType::Struct(
                fields
                    .iter()
                    .map(|f| Some((f.name().clone(), Self::from_arrow(f.data_type())?)))
                    .collect::<Option<_>>()?,
            ),
            DataType::Map(f, _) => match f.data_type() {
                DataType::Struct(kv) if kv.len() == 2 => SqlType::Map(
                    Box::new(Self::from_arrow(kv[0].data_type())?),
                    Box::new(Self::from_arrow(kv[1].data_type())?),
                ),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether a column of this type can be part of a primary key: types with one total order and exact equality.
    pub fn can_be_key(&self) -> bool {
        !matches!(
            self,
            SqlType::Real
                | SqlType::Double
                | SqlType::Interval
                | SqlType::Jsonb
                | SqlType::Array(_)
                | SqlType::Struct(_)
                | SqlType::Map(..)
        )
    }
}

impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlType::Boolean => f.write_str("BOOLEAN"),
            SqlType::SmallInt => f.write_str("SMALLINT"),
            SqlType::Int => f.write_str("INT"),
            SqlType::BigInt => f.write_str("BIGINT"),
            SqlType::Real => f.write_str("REAL"),
            SqlType::Double => f.write_str("DOUBLE"),
            SqlType::Decimal(p, s) => write!(f, "DECIMAL({p},{s})"),
            SqlType::Varchar => f.write_str("VARCHAR"),
            SqlType::Bytea => f.write_str("BYTEA"),
            SqlType::Date => f.write_str("DATE"),
            SqlType::Time => f.write_str("TIME"),
            SqlType::Timestamp => f.write_str("TIMESTAMP"),
            SqlType::TimestampTz => f.write_str("TIMESTAMPTZ"),
            SqlType::Interval => f.write_str("INTERVAL"),
            SqlType::Jsonb => f.write_str("JSONB"),
            SqlType::Array(t) => write!(f, "{t}[]"),
            SqlType::Struct(fields) => {
                f.write_str("STRUCT(")?;
                for (i, (name, t)) in fields.iter().enumerate() {
                    write!(f, "{}\"{}\" {t}", if i > 0 { ", " } else { "" }, name.replace('"', "\"\""))?;
                }
                f.write_str(")")
            }
            SqlType::Map(k, v) => write!(f, "MAP({k}, {v})"),
        }
    }
}

/// The text is not a type that Millstream has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {text} at character {at}")]
pub struct UnknownType {
    pub text: String,
    pub at: usize,
}

impl FromStr for SqlType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let mut p = TypeParser { text, at: 0, depth: 0 };
        let t = p.parse()?;
        p.space();
        if p.at == text.len() { Ok(t) } else { Err(p.error()) }
    }
}

/// Recursive descent over the text form. Nesting is limited to 64, as in every decoder.
struct TypeParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl TypeParser<'_> {
    fn error(&self) -> UnknownType {
        UnknownType { text: self.text.to_owned(), at: self.at }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), UnknownType> {
        if self.eat(token) { Ok(()) } else { Err(self.error()) }
    }

    fn word(&mut self) -> String {
        self.space();
        let len = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let word = self.rest()[..len].to_ascii_uppercase();
        self.at += len;
        word
    }

    fn number<T: FromStr>(&mut self) -> Result<T, UnknownType> {
        let start = self.at;
        self.word().parse().map_err(|_| UnknownType { text: self.text.to_owned(), at: start })
    }

    fn name(&mut self) -> Result<String, UnknownType> {
        self.space();
        if !self.eat("\"") {
            let start = self.at;
            let word = self.word();
            return if word.is_empty() {
                Err(self.error())
            } else {
                Ok(self.text[start..self.at].trim().to_ascii_lowercase())
            };
        }
        let mut name = String::new();
        loop {
            let c = self.rest().chars().next().ok_or_else(|| self.error())?;
            self.at += c.len_utf8();
            if c != '"' {
                name.push(c);
            } else if self.rest().starts_with('"') {
                self.at += 1;
                name.push('"');
            } else {
                return Ok(name);
            }
        }
    }

    fn parse(&mut self) -> Result<SqlType, UnknownType> {
        self.depth += 1;
        if self.depth > 64 {
            return Err(self.error());
        }
        self.space();
        let start = self.at;
        let mut t = match self.word().as_str() {
            "BOOLEAN" | "BOOL" => SqlType::Boolean,
            "SMALLINT" | "INT2" => SqlType::SmallInt,
            "INT" | "INTEGER" | "INT4" => SqlType::Int,
            "BIGINT" | "INT8" => SqlType::BigInt,
            "REAL" | "FLOAT4" => SqlType::Real,
            "DOUBLE" | "FLOAT8" | "FLOAT" => {
                let back = self.at;
                if self.word() != "PRECISION" {
                    self.at = back;
                }
                SqlType::Double
            }
            "DECIMAL" | "NUMERIC" => self.decimal()?,
            "VARCHAR" | "TEXT" | "STRING" => SqlType::Varchar,
            "BYTEA" | "BYTES" => SqlType::Bytea,
            "DATE" => SqlType::Date,
            "TIME" => SqlType::Time,
            "TIMESTAMP" => SqlType::Timestamp,
            "TIMESTAMPTZ" => SqlType::TimestampTz,
            "INTERVAL" => SqlType::Interval,
            "JSONB" | "JSON" => SqlType::Jsonb,
            "STRUCT" => {
                self.expect("(")?;
                let mut fields = Vec::new();
                loop {
                    let name = self.name()?;
                    fields.push((name, self.parse()?));
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect(")")?;
                SqlType::Struct(fields)
            }
            "MAP" => {
                self.expect("(")?;
                let key = self.parse()?;
                self.expect(",")?;
                let value = self.parse()?;
                self.expect(")")?;
                SqlType::Map(Box::new(key), Box::new(value))
            }
            _ => {
                self.at = start;
                return Err(self.error());
            }
        };
        while self.eat("[]") {
            t = SqlType::Array(Box::new(t));
        }
        self.depth -= 1;
        Ok(t)
    }

    /// Bare DECIMAL is (38,10).
    fn decimal(&mut self) -> Result<SqlType, UnknownType> {
        if !self.eat("(") {
            return Ok(SqlType::Decimal(38, 10));
        }
        let precision: u8 = self.number()?;
        let scale: i8 = if self.eat(",") { self.number()? } else { 0 };
        self.expect(")")?;
        if !(1..=76).contains(&precision) || scale < 0 || scale as u8 > precision {
            return Err(self.error());
        }
        Ok(SqlType::Decimal(precision, scale))
    }
}

impl Serialize for SqlType {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SqlType {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_its_text_and_its_arrow_type() {
        for text in [
            "BOOLEAN",
            "SMALLINT",
            "INT",
            "BIGINT",
            "REAL",
            "DOUBLE",
            "DECIMAL(12,2)",
            "DECIMAL(60,5)",
            "VARCHAR",
            "BYTEA",
            "DATE",
            "TIME",
            "TIMESTAMP",
            "TIMESTAMPTZ",
            "INTERVAL",
            "BIGINT[]",
            "BIGINT[][]",
            "STRUCT(\"a\" BIGINT, \"b \"\"c\" VARCHAR[])",
            "MAP(VARCHAR, DOUBLE)",
        ] {
            let t: SqlType = text.parse().unwrap();
            assert_eq!(t.to_string(), text);
            assert_eq!(SqlType::from_arrow(&t.arrow()), Some(t));
        }
        assert_eq!("numeric".parse::<SqlType>().unwrap(), SqlType::Decimal(38, 10));
        assert_eq!("struct(a int)".parse::<SqlType>().unwrap().to_string(), "STRUCT(\"a\" INT)");
    }

    #[test]
    fn a_wrong_type_says_where() {
        assert_eq!("MAP(VARCHAR, WIBBLE)".parse::<SqlType>().unwrap_err().at, 13);
        assert!("DECIMAL(99,2)".parse::<SqlType>().is_err());
        assert!("DECIMAL(5,9)".parse::<SqlType>().is_err());
        assert!("STRUCT(".repeat(10_000).parse::<SqlType>().is_err());
        assert!("STRUCT(\"a".parse::<SqlType>().is_err());
    }
}
