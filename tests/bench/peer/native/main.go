// Native is the peer in Go: it loads one topic of many tables into ClickHouse, at least once, as a
// user of franz-go and clickhouse-go would write it.
//
// It receives an order in JSON as its only argument. Messages are row batches (rows/rows.proto)
// whose header `table` names their table. One goroutine reads and decodes them into columns while
// another inserts the columns before and commits their offsets. It ends with status 0 on SIGTERM;
// what is not inserted by then is read again at the next start.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

const (
	// Columns are used again and again: what is left to collect is the messages and notes.
	gcPercent = 400
	// One load is filled while the other one is inserted.
	loads = 2
	// Of a partition in one fetch: some ten thousands of rows.
	fetchBytes = 4 << 20
)

// order says what to load, and from where to where.
type order struct {
	Bootstrap    string   `json:"bootstrap"`
	Topic        string   `json:"topic"`
	Group        string   `json:"group"`
	Member       string   `json:"member"`
	ClickHouse   string   `json:"clickhouse"`
	User         string   `json:"user"`
	PasswordFile string   `json:"password_file"`
	Tables       []string `json:"tables"`
	// Rows of one table, and seconds since a load's first row, after which it is inserted.
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	LZ4     bool    `json:"lz4"`
}

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// run loads until the context ends or something fails that waiting does not mend.
func run(ctx context.Context, argument string) error {
	var wanted order
	if err := json.Unmarshal([]byte(argument), &wanted); err != nil {
		return err
	}
	client, err := newClient(wanted)
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := newServer(wanted)
	if err != nil {
		return err
	}
	defer server.Close()
	spare, full := make(chan *load, loads), make(chan *load)
	for range loads {
		spare <- newLoad(wanted.Tables)
	}
	both, ctx := errgroup.WithContext(ctx)
	age := time.Duration(wanted.Seconds * float64(time.Second))
	both.Go(func() error {
		return (&reader{client, wanted.Rows, age, spare, full}).run(ctx)
	})
	both.Go(func() error {
		return (&writer{client, server, full, spare}).run(ctx)
	})
	return both.Wait()
}

// newClient joins the group as a static member: after a kill it has its partitions back at once.
func newClient(wanted order) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(strings.Split(wanted.Bootstrap, ",")...),
		kgo.ConsumerGroup(wanted.Group),
		kgo.InstanceID(wanted.Member),
		kgo.ConsumeTopics(wanted.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.DisableAutoCommit(),
	)
}

// newServer has a connection for each table, which are all inserted at once.
func newServer(wanted order) (driver.Conn, error) {
	password, err := os.ReadFile(wanted.PasswordFile)
	if err != nil {
		return nil, err
	}
	method := clickhouse.CompressionNone
	if wanted.LZ4 {
		method = clickhouse.CompressionLZ4
	}
	return clickhouse.Open(&clickhouse.Options{
		Addr: []string{wanted.ClickHouse},
		Auth: clickhouse.Auth{
			Username: wanted.User,
			Password: strings.TrimSpace(string(password)),
		},
		// The server's dictionaries are cheaper than clickhouse-go's: it gets plain strings.
		Settings:     clickhouse.Settings{"low_cardinality_allow_in_native_format": 0},
		Compression:  &clickhouse.Compression{Method: method},
		MaxOpenConns: len(wanted.Tables),
		MaxIdleConns: len(wanted.Tables),
	})
}
