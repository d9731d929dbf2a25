// A driver of the client matrix with franz-go: `franz VERB …`.
// The verbs and their output are described in tests/support/client_drivers.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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
		record := &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(n % 7)), Value: []byte(strconv.Itoa(n))}
		c.Produce(context.Background(), record, func(_ *kgo.Record, err error) { check(err) })
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

func consume(bootstrap, topic, group, assignor, instance string) {
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
		consume(args[2], args[3], args[4], args[5], args[6])
	case "time":
		offsetsByTime(args[2], args[3], number(args[5]))
	case "admin":
		admin(args[2], args[3], number(args[4]))
	default:
		check(fmt.Errorf("no verb %s", args[1]))
	}
}
