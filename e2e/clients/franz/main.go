// The client script for franz-go. The steps are those of ../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 60 * time.Second

var (
	bootstrap, prefix string
	admin             *kadm.Client
	start             = time.Now().Add(-time.Hour).UnixMilli()
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func expect(condition bool, what string, args ...any) {
	if !condition {
		panic(fmt.Errorf(what, args...))
	}
}

// Kafka's number of an error, 0 for none.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	panic(err)
}

func limited() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func eventually(what string, check func() bool) {
	end := time.Now().Add(deadline)
	for !check() {
		expect(time.Now().Before(end), "not in time: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func topic(name string) string { return prefix + "-" + name }

func client(opts ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, opts...)...))
}

func producer(opts ...kgo.Opt) *kgo.Client {
	return client(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond)}, opts...)...)
}

func tryCreate(name string, partitions int32, factor int16, config map[string]*string) error {
	answer, err := admin.CreateTopics(limited(), partitions, factor, config, name)
	if err != nil {
		return err
	}
	return answer[name].Err
}

func create(name string, partitions int32, config map[string]*string) {
	check(tryCreate(name, partitions, 1, config))
}

func set(name, value string) map[string]*string { return map[string]*string{name: &value} }

func send(p *kgo.Client, name string, values []string, partitions int, time func(int) time.Time) {
	var records []*kgo.Record
	for i, v := range values {
		r := &kgo.Record{Topic: name, Partition: int32(i % partitions), Value: []byte(v)}
		if time != nil {
			r.Timestamp = time(i)
		}
		records = append(records, r)
	}
	check(p.ProduceSync(limited(), records...).FirstErr())
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// Data records up to the end that this isolation level sees. Markers are asked for, too: the last one may be the end.
func read(name string, committed bool) []*kgo.Record {
	level, ends := kgo.ReadUncommitted(), admin.ListEndOffsets
	if committed {
		level, ends = kgo.ReadCommitted(), admin.ListCommittedOffsets
	}
	goal, _ := must(ends(limited(), name)).Lookup(name, 0)
	check(goal.Err)
	begin, _ := must(admin.ListStartOffsets(limited(), name)).Lookup(name, 0)
	at := begin.Offset
	c := client(kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().At(at)}}))
	defer c.Close()
	var found []*kgo.Record
	ctx := limited()
	for at < goal.Offset {
		fetches := c.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if !r.Attrs.IsControl() {
				found = append(found, r)
			}
		})
	}
	return found
}

func values(records []*kgo.Record) string {
	var out []string
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return strings.Join(out, ",")
}

func createTopic() string {
	name := topic("created")
	create(name, 3, nil)
	partitions := 0
	eventually("the topic is known", func() bool {
		partitions = len(must(admin.ListTopics(limited(), name))[name].Partitions)
		return partitions > 0
	})
	again, bad := code(tryCreate(name, 1, 1, nil)), code(tryCreate("a b", 1, 1, nil))
	factor, config := code(tryCreate(topic("factor"), 1, 3, nil)), code(tryCreate(topic("config"), 1, 1, set("cleanup.policy", "keep")))
	return fmt.Sprintf("partitions=%d again=%d bad_name=%d factor_3=%d bad_config=%d", partitions, again, bad, factor, config)
}

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

func produce(index int) string {
	codec := codecs[index]
	name := topic("codec-" + codec.name)
	create(name, 1, nil)
	p := producer(kgo.ProducerBatchCompression(codec.codec))
	defer p.Close()
	var sent []string
	for i := range 200 {
		sent = append(sent, fmt.Sprintf("%s-%d-%s", codec.name, i, strings.Repeat("x", 100)))
	}
	send(p, name, sent, 1, nil)
	found := read(name, false)
	expect(values(found) == strings.Join(sent, ","), "records differ")
	last := found[len(found)-1]
	return fmt.Sprintf("read=%d offsets=%d..%d codec=%d", len(found), found[0].Offset, last.Offset, last.Attrs.CompressionType())
}

type member struct {
	stop            chan struct{}
	done            chan struct{}
	mu              sync.Mutex
	assigned        map[int32]bool
	count, balanced atomic.Int32
	err             atomic.Value
}

func (m *member) hold(change map[string][]int32, name string, have bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range change[name] {
		if have {
			m.assigned[p] = true
		} else {
			delete(m.assigned, p)
		}
	}
	m.balanced.Store(int32(len(m.assigned)))
}

func startMember(name, group string, seen func(string)) *member {
	m := &member{stop: make(chan struct{}), done: make(chan struct{}), assigned: map[int32]bool{}}
	changed := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.hold(p, name, have) }
	}
	c := client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(name), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(changed(true)), kgo.OnPartitionsRevoked(changed(false)), kgo.OnPartitionsLost(changed(false)))
	go func() {
		defer close(m.done)
		defer c.Close()
		defer func() {
			if e := recover(); e != nil {
				m.err.Store(fmt.Errorf("%v", e))
			}
		}()
		for {
			select {
			case <-m.stop:
				c.AllowRebalance()
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			fetches := c.PollRecords(ctx, 1)
			cancel()
			if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
			for _, r := range fetches.Records() {
				seen(string(r.Value))
				m.count.Add(1)
				check(c.CommitRecords(limited(), r))
			}
			c.AllowRebalance()
		}
	}()
	return m
}

func groupRebalance() string {
	name, group := topic("group"), prefix+"-group"
	create(name, 6, nil)
	var mu sync.Mutex
	seen, total := map[string]bool{}, 0
	note := func(v string) {
		mu.Lock()
		defer mu.Unlock()
		seen[v] = true
		total++
	}
	members := []*member{startMember(name, group, note), startMember(name, group, note), startMember(name, group, note)}
	stop := func(m *member) {
		select {
		case <-m.stop:
		default:
			close(m.stop)
		}
	}
	share := func(of []*member, each int32) bool {
		for _, m := range of {
			if err := m.err.Load(); err != nil {
				panic(err)
			}
			if m.balanced.Load() != each {
				return false
			}
		}
		return true
	}
	read := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return total >= n
	}
	func() {
		p := producer()
		defer p.Close()
		defer func() {
			for _, m := range members {
				stop(m)
				<-m.done
			}
		}()
		eventually("three share", func() bool { return share(members, 2) })
		send(p, name, numbers(0, 300), 6, nil)
		eventually("300 are read", func() bool { return share(members, 2) && read(300) })
		for _, m := range members {
			expect(m.count.Load() > 0, "a member had nothing")
		}
		stop(members[0])
		send(p, name, numbers(300, 600), 6, nil)
		eventually("two share", func() bool { return share(members[1:], 3) })
		eventually("600 are read", func() bool { return share(members[1:], 3) && read(600) })
	}()
	expect(total == 600 && len(seen) == 600, "%d read, %d different", total, len(seen))
	state := must(admin.DescribeGroups(limited(), group))[group].State
	return fmt.Sprintf("read=%d different=%d group_after=%s", total, len(seen), strings.ToUpper(state))
}

func transactional(name string) *kgo.Client {
	p := producer(kgo.TransactionalID(prefix+"-"+name), kgo.TransactionTimeout(time.Minute))
	// franz-go asks for its producer id when it begins; other clients do in init_transactions.
	_, _, err := p.ProducerID(limited())
	check(err)
	return p
}

func end(p *kgo.Client, how kgo.TransactionEndTry) error { return p.EndTransaction(limited(), how) }

var open [2]int

func transactions() string {
	name := topic("transactions")
	create(name, 1, nil)
	p := transactional("plain")
	defer p.Close()
	for i := range 3 {
		check(p.BeginTransaction())
		send(p, name, numbers(i*10, i*10+10), 1, nil)
		check(end(p, kgo.TransactionEndTry(i != 1)))
	}
	check(p.BeginTransaction())
	send(p, name, numbers(30, 35), 1, nil)
	open = [2]int{len(read(name, true)), len(read(name, false))}
	check(end(p, kgo.TryCommit))
	// The last marker may be written after the commit was answered.
	var last kadm.ListedOffset
	eventually("the markers are there", func() bool {
		last, _ = must(admin.ListEndOffsets(limited(), name)).Lookup(name, 0)
		return last.Offset >= 39
	})
	return fmt.Sprintf("end=%d", last.Offset)
}

func readLevel(committed bool, whileOpen int, expected []string) string {
	var found []*kgo.Record
	eventually("the marker is there", func() bool {
		found = read(topic("transactions"), committed)
		return len(found) == len(expected)
	})
	expect(values(found) == strings.Join(expected, ","), "records differ")
	return fmt.Sprintf("open=%d after=%d", whileOpen, len(found))
}

func zombieFenced() string {
	name := topic("zombie")
	create(name, 1, nil)
	zombie := transactional("zombie")
	defer zombie.Close()
	check(zombie.BeginTransaction())
	send(zombie, name, numbers(0, 5), 1, nil)
	second := transactional("zombie")
	defer second.Close()
	fenced := code(end(zombie, kgo.TryCommit))
	expect(fenced != 0, "the zombie committed")
	check(second.BeginTransaction())
	send(second, name, numbers(5, 10), 1, nil)
	check(end(second, kgo.TryCommit))
	var found []*kgo.Record
	eventually("the commit is seen", func() bool {
		found = read(name, true)
		return len(found) > 0
	})
	return fmt.Sprintf("error=%d read=%s", fenced, values(found))
}

// The client's own way: a session that consumes and produces, and commits what it has consumed in its transaction.
func transactionOffsets() string {
	name, out, group := topic("offsets"), topic("offsets-out"), prefix+"-offsets"
	create(name, 1, nil)
	create(out, 1, nil)
	p := producer()
	defer p.Close()
	send(p, name, numbers(0, 5), 1, nil)
	s := must(kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(prefix+"-offsets"), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(name), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.DefaultProduceTopic(out)))
	defer s.Close()
	var after []int64
	for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		ctx := limited()
		for n := 0; n < 5; {
			fetches := s.PollFetches(ctx)
			check(fetches.Err())
			if n == 0 && fetches.NumRecords() > 0 {
				check(s.Begin())
			}
			n += fetches.NumRecords()
		}
		check(s.ProduceSync(limited(), &kgo.Record{Value: []byte("1")}).FirstErr())
		committed, err := s.End(limited(), how)
		check(err)
		expect(committed == bool(how), "the session did otherwise")
		// kadm does not ask for stable offsets: the marker may be written after the commit was answered.
		var offset kadm.OffsetResponse
		eventually("an offset is committed", func() (known bool) {
			offset, known = must(admin.FetchOffsets(limited(), group)).Lookup(name, 0)
			return known
		})
		after = append(after, offset.At)
		if how == kgo.TryCommit {
			send(p, name, numbers(5, 10), 1, nil)
		}
	}
	expect(after[0] == 5 && after[1] == 5, "%v", after)
	return fmt.Sprintf("after_commit=%d after_abort=%d", after[0], after[1])
}

func deleteUpTo(name string, offset int64) (int64, error) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(name, 0, offset, -1)
	answer, err := admin.DeleteRecords(limited(), offsets)
	if err != nil {
		return 0, err
	}
	one, _ := answer.Lookup(name, 0)
	return one.LowWatermark, one.Err
}

func deleteRecords() string {
	name, compacted := topic("delete"), topic("compacted")
	create(name, 1, nil)
	create(compacted, 1, set("cleanup.policy", "compact"))
	p := producer()
	defer p.Close()
	send(p, name, numbers(0, 20), 1, nil)
	low := must(deleteUpTo(name, 12))
	first := read(name, false)[0].Offset
	_, beyond := deleteUpTo(name, 21)
	_, refused := deleteUpTo(compacted, 0)
	return fmt.Sprintf("low=%d first=%d beyond=%d compacted=%d all=%d", low, first, code(beyond), code(refused), must(deleteUpTo(name, -1)))
}

func listOffsets() string {
	name := topic("times")
	create(name, 1, set("retention.ms", "-1"))
	p := producer()
	defer p.Close()
	send(p, name, numbers(0, 100), 1, func(i int) time.Time { return time.UnixMilli(start + int64(i)*10) })
	offset := func(found kadm.ListedOffsets, err error) int64 {
		check(err)
		one, _ := found.Lookup(name, 0)
		check(one.Err)
		return one.Offset
	}
	var byTime []string
	for _, t := range []int64{start - 1, start + 501, start + 990, start + 991} {
		byTime = append(byTime, strconv.FormatInt(offset(admin.ListOffsetsAfterMilli(limited(), t, name)), 10))
	}
	return fmt.Sprintf("earliest=%d latest=%d newest=%d by_time=%s", offset(admin.ListStartOffsets(limited(), name)),
		offset(admin.ListEndOffsets(limited(), name)), offset(admin.ListMaxTimestampOffsets(limited(), name)), strings.Join(byTime, ","))
}

func configs(found kadm.ResourceConfigs, err error) (map[string]string, error) {
	check(err)
	expect(len(found) == 1, "%d resources", len(found))
	out := map[string]string{}
	for _, c := range found[0].Configs {
		out[c.Key] = fmt.Sprintf("%s/%s", c.MaybeValue(), c.Source)
	}
	return out, found[0].Err
}

func alter(name, option, value string) error {
	answer, err := admin.AlterTopicConfigs(limited(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: option, Value: &value}}, name)
	check(err)
	return answer[0].Err
}

func describeConfigs() string {
	name := topic("configs")
	create(name, 1, set("retention.ms", "1234567"))
	found := must(configs(admin.DescribeTopicConfigs(limited(), name)))
	check(alter(name, "cleanup.policy", "compact"))
	altered := ""
	eventually("it is altered", func() bool {
		altered = must(configs(admin.DescribeTopicConfigs(limited(), name)))["cleanup.policy"]
		return strings.HasPrefix(altered, "compact/")
	})
	refused := code(alter(name, "retention.ms", "x"))
	broker := must(configs(admin.DescribeBrokerConfigs(limited(), 1)))["transaction.max.timeout.ms"]
	_, missing := configs(admin.DescribeTopicConfigs(limited(), topic("nowhere")))
	return fmt.Sprintf("retention.ms=%s cleanup.policy=%s max.message.bytes=%s altered=%s refused=%d broker=%s missing=%d",
		found["retention.ms"], found["cleanup.policy"], found["max.message.bytes"], altered, refused, broker, code(missing))
}

func configNames() string {
	var names []string
	for name := range must(configs(admin.DescribeTopicConfigs(limited(), topic("configs")))) {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ",")
}

func deleteTopic() string {
	name := topic("created")
	remove := func() error {
		answer, err := admin.DeleteTopics(limited(), name)
		check(err)
		return answer[name].Err
	}
	check(remove())
	eventually("it is gone", func() bool { return !must(admin.ListTopics(limited())).Has(name) })
	return fmt.Sprintf("again=%d", code(remove()))
}

func step(name string, work func() string) {
	line := func() (line string) {
		defer func() {
			if e := recover(); e != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", name, e, debug.Stack())
				line = fmt.Sprintf("FAIL %v", e)
			}
		}()
		return "ok " + work()
	}()
	fmt.Println("franz-go", name, strings.Join(strings.Fields(line), " "))
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: franz BOOTSTRAP PREFIX")
		os.Exit(2)
	}
	bootstrap, prefix = os.Args[1], os.Args[2]
	admin = kadm.NewClient(client())
	step("create_topic", createTopic)
	for i, codec := range codecs {
		step("produce_"+codec.name, func() string { return produce(i) })
	}
	step("group_rebalance", groupRebalance)
	step("transactions", transactions)
	step("read_committed", func() string { return readLevel(true, open[0], append(numbers(0, 10), numbers(20, 35)...)) })
	step("read_uncommitted", func() string { return readLevel(false, open[1], numbers(0, 35)) })
	step("zombie_fenced", zombieFenced)
	step("transaction_offsets", transactionOffsets)
	step("delete_records", deleteRecords)
	step("list_offsets", listOffsets)
	step("describe_configs", describeConfigs)
	step("config_names", configNames)
	step("delete_topic", deleteTopic)
}
