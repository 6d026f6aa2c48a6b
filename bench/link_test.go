package main

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelayedBytesArriveAfterTheDelay sends pieces in a burst and later, in virtual time. Each arrives exactly when the
// delay is over, however many are on their way.
func TestDelayedBytesArriveAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, burst = 5 * time.Millisecond, 1000
		said, from := io.Pipe()
		heard, to := io.Pipe()
		done := make(chan error)
		go func() {
			err := late(to, said, delay)
			to.Close()
			done <- err
		}()
		start := time.Now()
		go func() {
			for range burst {
				from.Write([]byte("x"))
			}
			time.Sleep(2 * time.Millisecond)
			from.Write([]byte("later"))
			from.Close()
		}()
		got := make([]byte, burst)
		if _, err := io.ReadFull(heard, got); err != nil || time.Since(start) != delay {
			t.Errorf("the burst has come after %v: %v", time.Since(start), err)
		}
		rest, err := io.ReadAll(heard)
		if err != nil || string(rest) != "later" || time.Since(start) != delay+2*time.Millisecond {
			t.Errorf("%q has come after %v: %v", rest, time.Since(start), err)
		}
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestDelayEndsWhenTheReaderCloses closes the reader while the writer continues.
func TestDelayEndsWhenTheReaderCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, from := io.Pipe()
		heard, to := io.Pipe()
		heard.Close()
		go func() {
			for {
				if _, err := from.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		if err := late(to, said, time.Second); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestRoundTripTakesTwiceTheDelay sends messages there and back over a real one.
func TestRoundTripTakesTwiceTheDelay(t *testing.T) {
	took, err := measureLink(t.Context(), time.Millisecond)
	if err != nil || len(took) != linkTrips {
		t.Fatalf("%d trips: %v", len(took), err)
	}
	for _, d := range took {
		if d < 2*time.Millisecond { // it may be more, but never less
			t.Errorf("a message went there and back in %v", d)
		}
	}
}
