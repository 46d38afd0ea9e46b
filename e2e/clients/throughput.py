"""How fast librdkafka and the Java client produce to and consume from two running brokers, in turns. Prints records/s of each run and the median ratios.

throughput.py NAME=HOST:PORT NAME=HOST:PORT [--runs 3] [--records 1000000] [--size 200] [--jars DIR]
The first broker is compared with the second. One warm-up run on both is not counted."""

import argparse
import re
import statistics
import subprocess
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def delete(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def librdkafka_produce(bootstrap, topic, records, size):
    p = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 500000})
    value = b"x" * size
    begin = time.monotonic()
    for i in range(records):
        while True:
            try:
                p.produce(topic, value, partition=i % PARTITIONS)
                break
            except BufferError:
                p.poll(0.05)
    if p.flush(120):
        raise TimeoutError("records are left")
    return records / (time.monotonic() - begin)


def librdkafka_consume(bootstrap, topic, records, _size):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    begin, seen = time.monotonic(), 0
    c.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    while seen < records:
        seen += len(c.consume(10000, 1))
        if time.monotonic() - begin > 120:
            raise TimeoutError(f"{seen} of {records}")
    rate = records / (time.monotonic() - begin)
    c.close()
    return rate


def java(jars, tool, *args):
    command = ["java", "-Xmx512m", "-Dlog4j2.level=ERROR", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def java_produce(jars):
    def run(bootstrap, topic, records, size):
        out = java(jars, "ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
                   "--command-property", f"bootstrap.servers={bootstrap}", "acks=all", "linger.ms=5", "batch.size=131072")
        return float(re.findall(r"([\d.]+) records/sec", out)[-1])

    return run


def java_consume(jars):
    def run(bootstrap, topic, records, _size):
        out = java(jars, "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records))
        head, row = [line.split(", ") for line in out.strip().splitlines() if ", " in line][-2:]
        return float(dict(zip(head, row))["fetch.nMsg.sec"])

    return run


def main():
    a = argparse.ArgumentParser()
    a.add_argument("broker", nargs=2)
    a.add_argument("--runs", type=int, default=3)
    a.add_argument("--records", type=int, default=1_000_000)
    a.add_argument("--size", type=int, default=200)
    a.add_argument("--jars")
    a = a.parse_args()
    brokers = [b.split("=", 1) for b in a.broker]
    clients = {"librdkafka": (librdkafka_produce, librdkafka_consume)}
    if a.jars:
        clients["java"] = (java_produce(a.jars), java_consume(a.jars))
    for client, works in clients.items():
        rates = {}
        for run in range(-1, a.runs):
            for name, bootstrap in brokers if run % 2 else brokers[::-1]:
                topic = f"bench-{client}-{a.size}-{time.time_ns()}"
                create(bootstrap, topic)
                for what, work in zip(("produce", "consume"), works):
                    rate = work(bootstrap, topic, a.records, a.size)
                    if run >= 0:
                        rates.setdefault((what, name), []).append(rate)
                delete(bootstrap, topic)
        for what in ("produce", "consume"):
            mine, other = ([round(r / 1000) for r in rates[what, n]] for n, _ in brokers)
            pairs = [x / y for x, y in zip(mine, other)]
            ratio = statistics.median(mine) / statistics.median(other)
            print(f"{client} {what} {a.size} bytes: {brokers[0][0]} {mine} k/s, {brokers[1][0]} {other} k/s, "
                  f"ratio of medians {ratio:.2f}, of runs {' '.join(f'{p:.2f}' for p in pairs)}", flush=True)


main()
