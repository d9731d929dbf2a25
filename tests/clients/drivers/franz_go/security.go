// How franz-go connects with a login, and the administration of rights: used by main.go.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login returns the options of the login that MATRIX_LOGIN names.
func login() []kgo.Opt {
	name := os.Getenv("MATRIX_LOGIN")
	if name == "" {
		return nil
	}
	var l struct{ CA, Chain, Key, Mechanism, User, Password, Token string }
	text, err := os.ReadFile(name + ".json")
	check(err)
	check(json.Unmarshal(text, &l))
	var options []kgo.Opt
	if l.CA != "" {
		options = append(options, kgo.DialTLSConfig(tlsConfig(l.CA, l.Chain, l.Key)))
	}
	switch l.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: l.Token}.AsMechanism()))
	}
	return options
}

func tlsConfig(ca, chain, key string) *tls.Config {
	pem, err := os.ReadFile(ca)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if chain != "" {
		own, err := tls.LoadX509KeyPair(chain, key)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func attempt(bootstrap, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := client(bootstrap)
	defer c.Close()
	err := c.Ping(ctx)
	if err == nil {
		err = c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("0")}).FirstErr()
	}
	if err == nil {
		say(map[string]any{"acked": 0})
		return
	}
	class, code := fmt.Sprintf("%T", err), any(nil)
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		class, code = kafka.Message, kafka.Code
	}
	say(map[string]any{"error": class, "code": code, "text": err.Error()})
}

func rights(bootstrap, topic string) {
	c := client(bootstrap)
	defer c.Close()
	a := kadm.NewClient(c)
	ctx := context.Background()
	acls(ctx, a, topic)
	users(ctx, a)
	quotas(ctx, a)
	operations(ctx, c, topic)
}

func acls(ctx context.Context, a *kadm.Client, topic string) {
	made, err := a.CreateACLs(ctx, kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Allow("User:bob").AllowHosts("*").Operations(kadm.OpRead))
	check(err)
	for _, one := range made {
		check(one.Err)
	}
	filter := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Allow().AllowHosts().Deny().DenyHosts().Operations()
	found, gone := []string{}, []string{}
	for len(found) == 0 { // the broker that was asked may not know it yet
		described, err := a.DescribeACLs(ctx, filter)
		check(err)
		for _, one := range described {
			check(one.Err)
			for _, acl := range one.Described {
				found = append(found, acl.Principal)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	deleted, err := a.DeleteACLs(ctx, filter)
	check(err)
	for _, one := range deleted {
		check(one.Err)
		for _, acl := range one.Deleted {
			gone = append(gone, acl.Principal)
		}
	}
	say(map[string]any{"acls": found, "deleted": gone})
}

func users(ctx context.Context, a *kadm.Client) {
	altered, err := a.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
		{User: "erin", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "erin-secret"}})
	check(err)
	for _, one := range altered {
		check(one.Err)
	}
	described, err := a.DescribeUserSCRAMs(ctx, "erin")
	check(err)
	found := []string{}
	for _, one := range described["erin"].CredInfos {
		found = append(found, fmt.Sprintf("%s %d", one.Mechanism, one.Iterations))
	}
	say(map[string]any{"scram": found})
}

func quotas(ctx context.Context, a *kadm.Client) {
	name := "erin"
	altered, err := a.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1e6}},
	}})
	check(err)
	for _, one := range altered {
		check(one.Err)
	}
	described, err := a.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{
		{Type: "user", MatchType: kmsg.QuotasMatchTypeExact, MatchName: &name}})
	check(err)
	for _, one := range described {
		for _, value := range one.Values {
			if value.Key == "producer_byte_rate" {
				say(map[string]any{"quota": value.Value})
			}
		}
	}
}

// kadm has no authorized operations of topics, so this sends the requests themselves.
func operations(ctx context.Context, c *kgo.Client, topic string) {
	ask := kmsg.NewPtrMetadataRequest()
	ask.IncludeTopicAuthorizedOperations = true
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	ask.Topics = append(ask.Topics, one)
	metadata, err := ask.RequestWith(ctx, c)
	check(err)
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeClusterAuthorizedOperations = true
	described, err := cluster.RequestWith(ctx, c)
	check(err)
	say(map[string]any{
		"operations": names(metadata.Topics[0].AuthorizedOperations),
		"cluster":    names(described.ClusterAuthorizedOperations),
	})
}

// names returns the operations of a bit field.
func names(operations int32) []string {
	found := []string{}
	for bit := 0; bit < 31; bit++ {
		if operations&(1<<bit) != 0 {
			found = append(found, kmsg.ACLOperation(bit).String())
		}
	}
	sort.Strings(found)
	return found
}
