package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// reader fills spare loads, and hands each over when a table has enough rows or it is old enough.
type reader struct {
	client *kgo.Client
	rows   int
	age    time.Duration
	spare  <-chan *load
	full   chan<- *load
}

func (r *reader) run(ctx context.Context) error {
	filling, err := receive(ctx, r.spare)
	for err == nil {
		var fetches kgo.Fetches
		if fetches, err = r.poll(ctx, filling); err == nil {
			filling, err = r.take(ctx, fetches, filling)
		}
	}
	return err
}

// poll waits for messages, but not longer than the load may wait.
func (r *reader) poll(ctx context.Context, filling *load) (kgo.Fetches, error) {
	waiting := ctx
	if !filling.isEmpty() {
		var stop context.CancelFunc
		waiting, stop = context.WithDeadline(ctx, filling.since.Add(r.age))
		defer stop()
	}
	fetches := r.client.PollFetches(waiting)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	return fetches, nil
}

// take puts messages into the load, and returns the one that goes on being filled.
func (r *reader) take(ctx context.Context, fetches kgo.Fetches, filling *load) (*load, error) {
	for record := range fetches.RecordsAll() {
		rows, err := filling.add(record)
		if err == nil && rows >= r.rows {
			filling, err = r.handOver(ctx, filling)
		}
		if err != nil {
			return nil, err
		}
	}
	if !filling.isEmpty() && time.Since(filling.since) >= r.age {
		return r.handOver(ctx, filling)
	}
	return filling, nil
}

// handOver waits until the load before is inserted; it returns an empty one.
func (r *reader) handOver(ctx context.Context, filled *load) (*load, error) {
	if err := send(ctx, r.full, filled); err != nil {
		return nil, err
	}
	return receive(ctx, r.spare)
}

func receive(ctx context.Context, from <-chan *load) (*load, error) {
	select {
	case one := <-from:
		return one, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func send(ctx context.Context, to chan<- *load, one *load) error {
	select {
	case to <- one:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
