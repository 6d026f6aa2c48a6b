package serve

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// A member that does not answer sends no sign, and sends signs again when it answers.
func TestWatchdogHearsOnlyAMemberThatAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var events []string
	answers := []error{nil, errors.New("stuck"), nil}
	watch(ctx, time.Millisecond, func(context.Context) error {
		if len(answers) == 0 {
			cancel()
			return errors.New("the end")
		}
		answer := answers[0]
		answers = answers[1:]
		events = append(events, "check")
		return answer
	}, func() { events = append(events, "sign") })
	if want := []string{"check", "sign", "check", "check", "sign"}; !slices.Equal(events, want) {
		t.Errorf("the watchdog did %v, and should do %v", events, want)
	}
}

func TestWatchdogBoundsACheck(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	watch(ctx, time.Millisecond, func(bounded context.Context) error {
		<-bounded.Done()
		cancel()
		return bounded.Err()
	}, func() { t.Error("a check that ran out of time sent a sign") })
}
