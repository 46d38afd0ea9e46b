"""The client script for librdkafka (confluent-kafka). The steps are those of README.md."""

import threading
import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from steps import CODECS, DEADLINE, Script, arguments, eventually, expect

BOOTSTRAP, PREFIX = arguments()
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
TIME = int(time.time() * 1000) - 3_600_000


def topic(name):
    return f"{PREFIX}-{name}"


def code(work, *args):
    """Kafka's number of the error that a call ends with, 0 for none."""
    try:
        work(*args)
        return 0
    except KafkaException as e:
        return e.args[0].code()


def only(futures):
    """The outcome of a call for one thing."""
    return next(iter(futures.values())).result(DEADLINE)


def create(name, partitions=1, factor=1, config=None):
    new = NewTopic(name, num_partitions=partitions, replication_factor=factor, config=config or {})
    admin.create_topics([new])[name].result(DEADLINE)


def producer(**options):
    return Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5} | {k.replace("_", "."): v for k, v in options.items()})


def send(p, name, values, partitions=1, times=None):
    errors = []
    for i, value in enumerate(values):
        extra = {"timestamp": times[i]} if times else {}
        p.produce(name, value=str(value), partition=i % partitions, on_delivery=lambda e, _: e and errors.append(e), **extra)
        p.poll(0)
    expect(p.flush(DEADLINE) == 0, "records are left")
    if errors:
        raise KafkaException(errors[0])


def read(name, isolation="read_uncommitted", start=OFFSET_BEGINNING):
    """(offset, value) up to the end that this isolation level sees."""
    c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": PREFIX + "-reader", "enable.auto.commit": False,
                  "enable.partition.eof": True, "isolation.level": isolation, "check.crcs": True, "auto.offset.reset": "error"})
    try:
        c.assign([TopicPartition(name, 0, start)])
        found, end = [], time.monotonic() + DEADLINE
        while time.monotonic() < end:
            m = c.poll(0.2)
            if m is None:
                continue
            if m.error() is None:
                found.append((m.offset(), m.value().decode()))
            elif m.error().code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(m.error())
        raise TimeoutError("no end in sight")
    finally:
        c.close()


def create_topic():
    name = topic("created")
    create(name, 3)
    partitions = eventually("the topic is known", lambda: len(admin.list_topics(name, DEADLINE).topics[name].partitions))
    again, bad, factor = code(create, name), code(create, "a b"), code(create, topic("factor"), 1, 3)
    config = code(create, topic("config"), 1, 1, {"cleanup.policy": "keep"})
    return f"partitions={partitions} again={again} bad_name={bad} factor_3={factor} bad_config={config}"


def produce(codec):
    name = topic("codec-" + codec)
    create(name)
    send(producer(compression_type=codec, enable_idempotence=True), name, [f"{codec}-{i}-" + "x" * 100 for i in range(200)])
    found = read(name)
    expect([v.split("-")[1] for _, v in found] == [str(i) for i in range(200)], "records differ")
    return f"read={len(found)} offsets={found[0][0]}..{found[-1][0]}"


class Member:
    def __init__(self, name, group, seen):
        self.stop, self.assigned, self.count, self.error = threading.Event(), None, 0, None
        self.thread = threading.Thread(target=self.run, args=(name, group, seen), daemon=True)
        self.thread.start()

    def run(self, name, group, seen):
        c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                      "partition.assignment.strategy": "range", "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
        try:
            c.subscribe([name], on_assign=lambda _, p: setattr(self, "assigned", len(p)), on_revoke=lambda *_: setattr(self, "assigned", None))
            while not self.stop.is_set():
                m = c.poll(0.1)
                if m is None:
                    continue
                if m.error():
                    raise KafkaException(m.error())
                seen.append(m.value().decode())
                self.count += 1
                c.commit(m, asynchronous=False)
        except Exception as e:
            self.error = e
        finally:
            c.close()
            self.assigned = None


def group_rebalance():
    name, group, seen = topic("group"), PREFIX + "-group", []
    create(name, 6)
    members = [Member(name, group, seen) for _ in range(3)]

    def alive():
        for m in members:
            if m.error:
                raise m.error
        return True

    try:
        eventually("three share", lambda: alive() and [m.assigned for m in members] == [2, 2, 2])
        p = producer()
        send(p, name, range(300), 6)
        eventually("300 are read", lambda: alive() and len(seen) >= 300)
        expect(all(m.count for m in members), "a member had nothing")
        members[0].stop.set()
        send(p, name, range(300, 600), 6)
        eventually("two share", lambda: alive() and [m.assigned for m in members[1:]] == [3, 3])
        eventually("600 are read", lambda: alive() and len(seen) >= 600)
    finally:
        for m in members:
            m.stop.set()
        for m in members:
            m.thread.join(DEADLINE)
    expect(sorted(map(int, seen)) == list(range(600)), f"{len(seen)} read, {len(set(seen))} different")
    state = admin.describe_consumer_groups([group])[group].result(DEADLINE).state.name
    return f"read={len(seen)} different={len(set(seen))} group_after={state}"


def transactional(name, timeout=60000):
    p = producer(transactional_id=f"{PREFIX}-{name}", transaction_timeout_ms=timeout)
    p.init_transactions(DEADLINE)
    return p


def transactions(during):
    name = topic("transactions")
    create(name)
    p = transactional("plain")
    for i in range(3):
        p.begin_transaction()
        send(p, name, range(i * 10, i * 10 + 10))
        if i == 1:
            p.abort_transaction(DEADLINE)
        else:
            p.commit_transaction(DEADLINE)
    p.begin_transaction()
    send(p, name, range(30, 35))
    for isolation in ("read_committed", "read_uncommitted"):
        during[isolation] = len(read(name, isolation))
    p.commit_transaction(DEADLINE)
    # The last marker may be written after the commit was answered.
    latest = lambda: only(admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()})).offset
    return f"end={eventually('the markers are there', lambda: latest() >= 39 and latest())}"


def read_level(isolation, during, expected):
    found = eventually("the marker is there", lambda: [f for f in [read(topic("transactions"), isolation)] if len(f) == len(expected)])[0]
    expect([int(v) for _, v in found] == expected, found)
    return f"open={during[isolation]} after={len(found)}"


def zombie_fenced():
    name = topic("zombie")
    create(name)
    zombie = transactional("zombie")
    zombie.begin_transaction()
    send(zombie, name, range(5))
    second = transactional("zombie")
    fenced = code(zombie.commit_transaction, DEADLINE)
    expect(fenced != 0, "the zombie committed")
    second.begin_transaction()
    send(second, name, range(5, 10))
    second.commit_transaction(DEADLINE)
    found = eventually("the commit is seen", lambda: read(name, "read_committed"))
    # -144 is librdkafka's own word for a producer that was fenced.
    return f"error={fenced} read={','.join(v for _, v in found)}"


def transaction_offsets():
    name, group = topic("offsets"), PREFIX + "-offsets"
    create(name)
    p, seen = transactional("offsets"), []
    c = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "isolation.level": "read_committed"})
    for offset, commit in ((5, True), (9, False)):
        p.begin_transaction()
        send(p, name, [1])
        p.send_offsets_to_transaction([TopicPartition(name, 0, offset)], c.consumer_group_metadata(), DEADLINE)
        if commit:
            p.commit_transaction(DEADLINE)
        else:
            p.abort_transaction(DEADLINE)
        seen.append(c.committed([TopicPartition(name, 0)], DEADLINE)[0].offset)
    c.close()
    expect(seen == [5, 5], seen)
    return f"after_commit={seen[0]} after_abort={seen[1]}"


def delete_records():
    name, compacted = topic("delete"), topic("compacted")
    create(name)
    create(compacted, config={"cleanup.policy": "compact"})
    send(producer(), name, range(20))

    def delete(t, offset):
        return admin.delete_records([TopicPartition(t, 0, offset)])[TopicPartition(t, 0)].result(DEADLINE)

    low = delete(name, 12).low_watermark
    first = read(name)[0][0]
    return f"low={low} first={first} beyond={code(delete, name, 21)} compacted={code(delete, compacted, 0)} all={delete(name, -1).low_watermark}"


def list_offsets():
    name = topic("times")
    create(name, config={"retention.ms": "-1"})
    send(producer(), name, range(100), times=[TIME + i * 10 for i in range(100)])
    tp = TopicPartition(name, 0)

    def at(spec):
        found = admin.list_offsets({tp: spec}, isolation_level=IsolationLevel.READ_COMMITTED)[tp].result(DEADLINE)
        return found.offset

    by_time = [at(OffsetSpec.for_timestamp(t)) for t in (TIME - 1, TIME + 501, TIME + 990, TIME + 991)]
    ends = f"earliest={at(OffsetSpec.earliest())} latest={at(OffsetSpec.latest())} newest={at(OffsetSpec.max_timestamp())}"
    return f"{ends} by_time={','.join(map(str, by_time))}"


def configs(kind, name):
    return only(admin.describe_configs([ConfigResource(kind, name)]))


def alter(name, config, value):
    change = [ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)]
    only(admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=change)]))


def describe_configs():
    name, kind = topic("configs"), ConfigResource.Type.TOPIC
    create(name, config={"retention.ms": "1234567"})
    eventually("the topic is known", lambda: admin.list_topics(name, DEADLINE).topics[name].error is None)
    found = configs(kind, name)
    shown = " ".join(f"{n}={found[n].value}/{found[n].source}" for n in ("retention.ms", "cleanup.policy", "max.message.bytes"))
    alter(name, "cleanup.policy", "compact")
    altered = eventually("it is altered", lambda: [v for v in [configs(kind, name)["cleanup.policy"]] if v.value == "compact"])[0]
    refused = code(alter, name, "retention.ms", "x")
    broker = configs(ConfigResource.Type.BROKER, "1")["transaction.max.timeout.ms"]
    return f"{shown} altered={altered.value}/{altered.source} refused={refused} broker={broker.value}/{broker.source} missing={code(configs, kind, topic('nowhere'))}"


def config_names():
    return ",".join(sorted(configs(ConfigResource.Type.TOPIC, topic("configs"))))


def delete_topic():
    name = topic("created")
    admin.delete_topics([name])[name].result(DEADLINE)
    eventually("it is gone", lambda: name not in admin.list_topics(timeout=DEADLINE).topics)
    return f"again={code(lambda: admin.delete_topics([name])[name].result(DEADLINE))}"


def main():
    s, during = Script("librdkafka"), {}
    s.step("create_topic", create_topic)
    for codec in CODECS:
        s.step("produce_" + codec, produce, codec)
    s.step("group_rebalance", group_rebalance)
    s.step("transactions", transactions, during)
    committed = [*range(10), *range(20, 35)]
    s.step("read_committed", read_level, "read_committed", during, committed)
    s.step("read_uncommitted", read_level, "read_uncommitted", during, list(range(35)))
    s.step("zombie_fenced", zombie_fenced)
    s.step("transaction_offsets", transaction_offsets)
    s.step("delete_records", delete_records)
    s.step("list_offsets", list_offsets)
    s.step("describe_configs", describe_configs)
    s.step("config_names", config_names)
    s.step("delete_topic", delete_topic)


main()
