// A test of a Go program with a real cluster: minikafka run -- go test ./...
package orders

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "orders-go"

// line is an event of docs/isolation.md.
type line struct {
	Client    string  `json:"client"`
	Number    int     `json:"number"`
	Event     string  `json:"event"`
	Outcome   string  `json:"outcome"`
	Topic     string  `json:"topic"`
	Partition *int32  `json:"partition,omitempty"`
	Offset    *int64  `json:"offset,omitempty"`
	Value     string  `json:"value"`
	Time      float64 `json:"time"`
}

// history writes events to a file that `minikafka run` judges.
type history struct{ file *os.File }

func openHistory(t *testing.T) *history {
	directory := os.Getenv("MINIKAFKA_HISTORY")
	if directory == "" {
		directory = t.TempDir()
	}
	file, err := os.Create(filepath.Join(directory, "go.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &history{file}
}

func (h *history) add(client string, number int, event, outcome string, record *kgo.Record) {
	made := line{Client: client, Number: number, Event: event, Outcome: outcome, Topic: topic,
		Value: string(record.Value), Time: float64(time.Now().UnixNano()) / 1e9}
	if outcome == "ok" {
		made.Partition, made.Offset = &record.Partition, &record.Offset
	}
	json.NewEncoder(h.file).Encode(made)
}

func TestOrdersArrive(t *testing.T) {
	context, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	history := openHistory(t)
	for number, value := range []string{"7 apples", "2 pears"} {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		history.add("go-producer", number, "write", "invoked", record)
		if err := client.ProduceSync(context, record).FirstErr(); err != nil {
			history.add("go-producer", number, "write", "unknown", record)
			t.Fatal(err)
		}
		history.add("go-producer", number, "write", "ok", record)
	}
	for seen := 0; seen < 2; {
		fetches := client.PollFetches(context)
		if context.Err() != nil {
			t.Fatal("the orders did not arrive")
		}
		fetches.EachRecord(func(record *kgo.Record) {
			history.add("go-consumer", seen, "read", "ok", record)
			seen++
		})
	}
}
