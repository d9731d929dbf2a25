// A driver of the client matrix with sarama: `sarama VERB …`, with the verbs produce, stream, consume and attempt.
// The verbs and their output are described in tests/support/clients/client_drivers.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type login struct{ CA, Chain, Key, Mechanism, User, Password, Token string }

// Token implements sarama.AccessTokenProvider.
type token string

func (t token) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(t)}, nil }

// scramClient implements sarama.SCRAMClient.
type scramClient struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authzID string) error {
	client, err := s.hash.NewClient(user, password, authzID)
	if err == nil {
		s.ClientConversation = client.NewConversation()
	}
	return err
}

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

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Metadata.RefreshFrequency = time.Second
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Retry.Max = 100
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	name := os.Getenv("MATRIX_LOGIN")
	if name == "" {
		return config
	}
	var l login
	text, err := os.ReadFile(name + ".json")
	check(err)
	check(json.Unmarshal(text, &l))
	if l.CA != "" {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, tlsConfig(l)
	}
	if l.Mechanism != "" {
		config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, sarama.SASLMechanism(l.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = l.User, l.Password
		config.Net.SASL.TokenProvider = token(l.Token)
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			if l.Mechanism == "SCRAM-SHA-256" {
				return &scramClient{hash: scram.SHA256}
			}
			return &scramClient{hash: scram.SHA512}
		}
	}
	return config
}

func tlsConfig(l login) *tls.Config {
	pem, err := os.ReadFile(l.CA)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if l.Chain != "" {
		own, err := tls.LoadX509KeyPair(l.Chain, l.Key)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func message(topic string, n int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(n)),
		Key: sarama.StringEncoder(strconv.Itoa(n % 7)), Metadata: n}
}

func produce(bootstrap []string, topic, codec string, first, count int) {
	config := settings()
	check(config.Producer.Compression.UnmarshalText([]byte(codec)))
	p, err := sarama.NewSyncProducer(bootstrap, config)
	check(err)
	var messages []*sarama.ProducerMessage
	for n := first; n < first+count; n++ {
		messages = append(messages, message(topic, n))
	}
	check(p.SendMessages(messages))
	check(p.Close())
}

func stream(bootstrap []string, topic string) {
	ended := untilInputEnds()
	p, err := sarama.NewAsyncProducer(bootstrap, settings())
	check(err)
	var done sync.WaitGroup
	done.Add(2)
	go func() {
		defer done.Done()
		for one := range p.Successes() {
			say(map[string]any{"acked": one.Metadata})
		}
	}()
	go func() {
		defer done.Done()
		for one := range p.Errors() {
			check(one.Err)
		}
	}()
	for n := 0; ended.Err() == nil; n++ {
		one := message(topic, n)
		one.Key = nil
		p.Input() <- one
		time.Sleep(5 * time.Millisecond)
	}
	p.AsyncClose()
	done.Wait()
}

type handler struct{ topic string }

func (h handler) Setup(s sarama.ConsumerGroupSession) error {
	say(map[string]any{"assigned": s.Claims()[h.topic]})
	return nil
}

func (h handler) Cleanup(s sarama.ConsumerGroupSession) error {
	say(map[string]any{"revoked": s.Claims()[h.topic]})
	return nil
}

func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for one := range claim.Messages() {
		say(map[string]any{"value": number(string(one.Value)), "partition": one.Partition, "offset": one.Offset})
		s.MarkMessage(one, "")
	}
	return nil
}

func consume(bootstrap []string, topic, group string) {
	ended := untilInputEnds()
	g, err := sarama.NewConsumerGroup(bootstrap, group, settings())
	check(err)
	for ended.Err() == nil {
		check(g.Consume(ended, []string{topic}, handler{topic}))
	}
	check(g.Close())
}

func attempt(bootstrap []string, topic string) {
	config := settings()
	config.Metadata.Retry.Max = 0
	config.Producer.Retry.Max = 1
	p, err := sarama.NewSyncProducer(bootstrap, config)
	if err == nil {
		_, _, err = p.SendMessage(message(topic, 0))
	}
	if err == nil {
		say(map[string]any{"acked": 0})
		return
	}
	code := any(nil)
	var kafka sarama.KError
	if errors.As(err, &kafka) {
		code = int16(kafka)
	}
	say(map[string]any{"error": fmt.Sprintf("%T", err), "code": code, "text": err.Error()})
}

func main() {
	args := os.Args
	bootstrap := strings.Split(args[2], ",")
	switch args[1] {
	case "produce":
		produce(bootstrap, args[3], args[4], number(args[5]), number(args[6]))
	case "stream":
		stream(bootstrap, args[3])
	case "consume":
		consume(bootstrap, args[3], args[4])
	case "attempt":
		attempt(bootstrap, args[3])
	default:
		check(fmt.Errorf("no verb %s", args[1]))
	}
}
