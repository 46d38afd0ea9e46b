//! How jemalloc gives memory back. Without a background thread freed pages stay until the same arena allocates again, and after a burst of ingestion the
//! process would look as large as its peak.

/// Read by jemalloc when it starts, before `main`. Dirty pages go back after a second; muzzy pages are not kept, since the kernel still counts them.
#[expect(unsafe_code, reason = "jemalloc looks its options up by the name of an exported symbol")]
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static MALLOC_CONF: &u8 = &b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0"[0];
