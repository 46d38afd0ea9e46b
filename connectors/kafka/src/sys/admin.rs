//! List offsets with an isolation level, and the id of a topic.

use std::{
    ffi::{c_char, c_int},
    ptr,
    time::{Duration, Instant},
};

use rdkafka::{bindings as rd, error::RDKafkaErrorCode as Code};

use super::{NativeClient, c_name, millis};

/// Which offset to list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spec {
    Start,
    /// End below which no transaction is open.
    StableEnd,
    HighWatermark,
    /// First record at or after the time, -1 if there is none.
    AtTime(i64),
}

impl Spec {
    fn offset(self) -> i64 {
        match self {
            Spec::Start => rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64,
            Spec::StableEnd | Spec::HighWatermark => rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST as i64,
            Spec::AtTime(ms) => ms,
        }
    }

    fn isolation(self) -> rd::rd_kafka_IsolationLevel_t {
        match self {
            Spec::StableEnd => rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
            _ => rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED,
        }
    }
}

/// A client's queue for the answers of one admin call.
struct ReplyQueue(*mut rd::rd_kafka_queue_t);

impl ReplyQueue {
    fn new(rk: *mut rd::rd_kafka_t) -> Self {
        // SAFETY: the client lives (callers hold it).
        Self(unsafe { rd::rd_kafka_queue_new(rk) })
    }

    fn poll(&self, until: Instant) -> Option<Reply> {
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: the queue lives; the event is freed by Reply.
        let event = unsafe { rd::rd_kafka_queue_poll(self.0, millis(left)) };
        (!event.is_null()).then_some(Reply(event))
    }
}

impl Drop for ReplyQueue {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed once.
        unsafe { rd::rd_kafka_queue_destroy(self.0) }
    }
}

struct Reply(*mut rd::rd_kafka_event_t);

impl Reply {
    fn check(&self) -> Result<(), Code> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { rd::rd_kafka_event_error(self.0) } {
            rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            err => Err(err.into()),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: taken from a queue and destroyed once.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

/// Options of one admin call.
struct CallOptions(*mut rd::rd_kafka_AdminOptions_t);

impl CallOptions {
    fn new(rk: *mut rd::rd_kafka_t, api: rd::rd_kafka_admin_op_t, timeout: Duration) -> Result<Self, Code> {
        let mut text = [0 as c_char; 256];
        // SAFETY: the client lives; the text buffer is as long as said.
        unsafe {
            let options = Self(rd::rd_kafka_AdminOptions_new(rk, api));
            match rd::rd_kafka_AdminOptions_set_request_timeout(
                options.0,
                millis(timeout),
                text.as_mut_ptr(),
                text.len(),
            ) {
                rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(options),
                err => Err(err.into()),
            }
        }
    }
}

impl Drop for CallOptions {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed once; calls copy them.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.0) }
    }
}

/// Offsets of `partitions` for each spec, all asked at once: `answer[spec][partition]`. Blocks up to `timeout`.
pub(crate) fn list_offsets(
    rk: NativeClient<'_>,
    topic: &str,
    partitions: &[i32],
    specs: &[Spec],
    timeout: Duration,
) -> Result<Vec<Vec<i64>>, Code> {
    let name = c_name(topic)?;
    let queue = ReplyQueue::new(rk.ptr);
    for (i, spec) in specs.iter().enumerate() {
        let options = CallOptions::new(rk.ptr, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS, timeout)?;
        // SAFETY: client, queue, options and list live during the call, which copies them.
        unsafe {
            let error = rd::rd_kafka_AdminOptions_set_isolation_level(options.0, spec.isolation());
            if !error.is_null() {
                let code = rd::rd_kafka_error_code(error);
                rd::rd_kafka_error_destroy(error);
                return Err(code.into());
            }
            rd::rd_kafka_AdminOptions_set_opaque(options.0, ptr::without_provenance_mut(i));
            let list = rd::rd_kafka_topic_partition_list_new(partitions.len() as c_int);
            for p in partitions {
                (*rd::rd_kafka_topic_partition_list_add(list, name.as_ptr(), *p)).offset = spec.offset();
            }
            rd::rd_kafka_ListOffsets(rk.ptr, list, options.0, queue.0);
            rd::rd_kafka_topic_partition_list_destroy(list);
        }
    }
    let until = Instant::now() + timeout + Duration::from_millis(500);
    let unknown = i64::from(rd::RD_KAFKA_OFFSET_INVALID);
    let mut answer = vec![vec![unknown; partitions.len()]; specs.len()];
    for _ in specs {
        let reply = queue.poll(until).ok_or(Code::OperationTimedOut)?;
        reply.check()?;
        // SAFETY: the event is a list offsets result (nothing else goes to this queue); its parts live as long as it does.
        unsafe {
            let spec = rd::rd_kafka_event_opaque(reply.0).addr();
            let mut n = 0;
            let infos = rd::rd_kafka_ListOffsets_result_infos(rd::rd_kafka_event_ListOffsets_result(reply.0), &mut n);
            for i in 0..n {
                let found = rd::rd_kafka_ListOffsetsResultInfo_topic_partition(*infos.add(i));
                if (*found).err != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    return Err((*found).err.into());
                }
                if let Some(at) = partitions.iter().position(|p| *p == (*found).partition) {
                    answer[spec][at] = (*found).offset;
                }
            }
        }
    }
    // While a broker restarts, the client may answer without an error and without an offset. Taken as an offset, that would be an empty log.
    if answer.iter().flatten().any(|offset| *offset == unknown) { Err(Code::LeaderNotAvailable) } else { Ok(answer) }
}

/// Id of a topic as its 16 bytes, and its number of partitions; `None` = no such topic. Blocks up to `timeout`.
pub(crate) fn describe_topic(
    rk: NativeClient<'_>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<([u8; 16], usize)>, Code> {
    let name = c_name(topic)?;
    let queue = ReplyQueue::new(rk.ptr);
    let options = CallOptions::new(rk.ptr, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout)?;
    // SAFETY: client, queue, options and names live during the call, which copies them.
    unsafe {
        let mut names = [name.as_ptr()];
        let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1);
        rd::rd_kafka_DescribeTopics(rk.ptr, topics, options.0, queue.0);
        rd::rd_kafka_TopicCollection_destroy(topics);
    }
    let reply = queue.poll(Instant::now() + timeout + Duration::from_millis(500)).ok_or(Code::OperationTimedOut)?;
    reply.check()?;
    // SAFETY: the event is a describe topics result; its parts live as long as it does.
    unsafe {
        let mut n = 0;
        let found =
            rd::rd_kafka_DescribeTopics_result_topics(rd::rd_kafka_event_DescribeTopics_result(reply.0), &mut n);
        if n == 0 {
            return Ok(None);
        }
        let error = rd::rd_kafka_TopicDescription_error(*found);
        if !error.is_null() {
            return match Code::from(rd::rd_kafka_error_code(error)) {
                Code::NoError => Err(Code::Unknown),
                Code::UnknownTopicOrPartition | Code::UnknownTopic => Ok(None),
                code => Err(code),
            };
        }
        let mut partitions = 0;
        rd::rd_kafka_TopicDescription_partitions(*found, &mut partitions);
        let id = rd::rd_kafka_TopicDescription_topic_id(*found);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rd::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
        bytes[8..].copy_from_slice(&rd::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
        Ok(Some((bytes, partitions)))
    }
}
