// A driver of the client matrix with franz-go: `franz VERB …`.
// The verbs and their output are described in tests/support/client_drivers.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var lock sync.Mutex

func say(fact map[string]any) {
	line, err := json.Marshal(fact)
	check(err)
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }()
	return ctx
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	options = append(options, login()...)
	options = append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	found, err := kgo.NewClient(options...)
	check(err)
	return found
}

func codec(name string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[name]
}

func produce(bootstrap, topic, codecName string, first, count int) {
	c := client(bootstrap, kgo.ProducerBatchCompression(codec(codecName)), kgo.ProducerLinger(5*time.Millisecond))
	defer c.Close()
	for n := first; n < first+count; n++ {
		c.Produce(context.Background(), record(topic, n), func(_ *kgo.Record, err error) { check(err) })
	}
	check(c.Flush(context.Background()))
}

func stream(bootstrap, topic string) {
	ended := untilInputEnds()
	c := client(bootstrap)
	defer c.Close()
	for n := 0; ended.Err() == nil; n++ {
		value := n
		record := &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(n))}
		c.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			check(err)
			say(map[string]any{"acked": value})
		})
		time.Sleep(5 * time.Millisecond)
	}
	check(c.Flush(context.Background()))
}

func record(topic string, n int) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(n % 7)), Value: []byte(strconv.Itoa(n))}
}

// transactional returns a client whose transactional id is initialized. While an older producer's transaction is being
// aborted, franz-go gives up with CONCURRENT_TRANSACTIONS, and needs a new client.
func transactional(bootstrap, id string) *kgo.Client {
	for {
		c := client(bootstrap, kgo.TransactionalID(id))
		_, _, err := c.ProducerID(context.Background())
		if err == nil {
			return c
		}
		c.Close()
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			check(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func transact(bootstrap, topic, id string, n, count int, ends []string) {
	ended := untilInputEnds()
	c := transactional(bootstrap, id)
	defer c.Close()
	for _, end := range ends {
		check(c.BeginTransaction())
		for stop := n + count; n < stop; n++ {
			c.Produce(context.Background(), record(topic, n), func(_ *kgo.Record, err error) { check(err) })
		}
		check(c.Flush(context.Background()))
		if end == "hold" {
			say(map[string]any{"open": true})
			<-ended.Done()
		}
		if err := c.EndTransaction(context.Background(), kgo.TransactionEndTry(end != "abort")); err != nil {
			say(map[string]any{"fenced": err.Error()})
			return
		}
		say(map[string]any{"ended": end})
	}
}

func copyRecords(bootstrap, source, target, group, id string) {
	ended := untilInputEnds()
	s, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.TransactionalID(id), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	check(err)
	defer s.Close()
	for ended.Err() == nil {
		fetches := s.PollFetches(ended)
		if fetches.Empty() {
			continue
		}
		check(s.Begin())
		values := []int{}
		fetches.EachRecord(func(r *kgo.Record) {
			s.Produce(context.Background(), &kgo.Record{Topic: target, Key: r.Key, Value: r.Value}, nil)
			values = append(values, number(string(r.Value)))
		})
		// The session aborts and rewinds by itself after a rebalance.
		committed, err := s.End(context.Background(), kgo.TryCommit)
		check(err)
		if committed {
			say(map[string]any{"copied": values})
		} else {
			say(map[string]any{"refused": "rebalanced"})
		}
	}
}

func consume(bootstrap, topic, group, assignor, instance, isolation string) {
	partitions := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			say(map[string]any{kind: append([]int32{}, found[topic]...)})
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(30 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(partitions("assigned")), kgo.OnPartitionsRevoked(partitions("revoked")),
		kgo.OnPartitionsLost(partitions("revoked")),
	}
	if assignor == "cooperative" {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	ended := untilInputEnds()
	c := client(bootstrap, options...)
	for ended.Err() == nil {
		fetches := c.PollFetches(ended)
		fetches.EachRecord(func(r *kgo.Record) {
			say(map[string]any{"value": number(string(r.Value)), "partition": r.Partition, "offset": r.Offset})
		})
		if !fetches.Empty() {
			if err := c.CommitUncommittedOffsets(context.Background()); err != nil {
				say(map[string]any{"refused": err.Error()})
			}
		}
	}
	c.Close()
}

func offsetsByTime(bootstrap, topic string, timestamp int) {
	c := client(bootstrap)
	defer c.Close()
	admin := kadm.NewClient(c)
	ends, err := admin.ListEndOffsets(context.Background(), topic)
	check(err)
	listed, err := admin.ListOffsetsAfterMilli(context.Background(), int64(timestamp), topic)
	check(err)
	offsets := map[string]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		check(o.Err)
		end, _ := ends.Lookup(topic, o.Partition)
		// kadm returns the end offset where no record is that late.
		if o.Offset == end.Offset {
			o.Offset = -1
		}
		offsets[strconv.Itoa(int(o.Partition))] = o.Offset
	})
	say(map[string]any{"offsets": offsets})
}

func admin(bootstrap, topic string, partitions int) {
	c := client(bootstrap)
	defer c.Close()
	a := kadm.NewClient(c)
	_, err := a.CreateTopic(context.Background(), int32(partitions), 3, nil, topic)
	check(err)
	described, err := a.ListTopics(context.Background(), topic)
	for err == nil && len(described[topic].Partitions) == 0 { // the broker that was asked does not know it yet
		time.Sleep(20 * time.Millisecond)
		described, err = a.ListTopics(context.Background(), topic)
	}
	check(err)
	_, err = a.DeleteTopic(context.Background(), topic)
	check(err)
	say(map[string]any{"partitions": len(described[topic].Partitions)})
}

func main() {
	args := os.Args
	switch args[1] {
	case "produce":
		produce(args[2], args[3], args[4], number(args[5]), number(args[6]))
	case "stream":
		stream(args[2], args[3])
	case "consume":
		consume(args[2], args[3], args[4], args[5], args[6], strings.Join(args[7:], ""))
	case "transact":
		transact(args[2], args[3], args[4], number(args[5]), number(args[6]), strings.Split(args[7], ","))
	case "copy":
		copyRecords(args[2], args[3], args[4], args[5], args[6])
	case "attempt":
		attempt(args[2], args[3])
	case "rights":
		rights(args[2], args[3])
	case "time":
		offsetsByTime(args[2], args[3], number(args[5]))
	case "admin":
		admin(args[2], args[3], number(args[4]))
	default:
		check(fmt.Errorf("no verb %s", args[1]))
	}
}
