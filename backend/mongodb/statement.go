package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	xdriver "go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/leasekeeper/leasekeeper/backend"
)

// answer is the server's answer to a command that writes.
type answer struct {
	N        int        `bson:"n"` // matched, inserted or deleted
	Upserted []upserted `bson:"upserted"`
	Errors   []refusal  `bson:"writeErrors"`
	Concern  *refusal   `bson:"writeConcernError"`
	Value    bson.Raw   `bson:"value"` // of findAndModify
}

type upserted struct {
	Index int `bson:"index"`
}

// refusal says why one statement of a command, by its index, was not done.
type refusal struct {
	Index   int    `bson:"index"`
	Code    int    `bson:"code"`
	Message string `bson:"errmsg"`
}

// write runs one command that writes, once: the driver repeats only what the server has refused to begin. It
// waits until the journals of a majority have the write. Duplicate keys are in the answer, and no error.
func (s *Store) write(ctx context.Context, what string, command bson.D) (answer, error) {
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return answer{}, err
	}
	defer done()
	return s.run(ctx, what, command)
}

// run does what write does, in a context of begin.
func (s *Store) run(ctx context.Context, what string, command bson.D) (answer, error) {
	command = append(command, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}})
	raw, err := s.db.RunCommand(ctx, command).Raw()
	if refused := (mongo.WriteException{}); errors.As(err, &refused) {
		raw, err = refused.Raw, nil
	}
	if err != nil {
		return answer{}, s.unwritten(what, err)
	}
	var a answer
	if err := bson.Unmarshal(raw, &a); err != nil {
		return answer{}, fmt.Errorf("mongodb: %w: %s: the answer cannot be read: %w", s.unknown(), what, err)
	}
	return a, s.answerError(what, a)
}

const duplicateKey = 11000

// answerError returns the error that an answer contains, if any.
func (s *Store) answerError(what string, a answer) error {
	changed := a.N > 0 || len(a.Upserted) > 0 || len(a.Value) > 0
	if a.Concern != nil && changed {
		return fmt.Errorf("mongodb: %w: %s was done, and may be undone when the primary changes: %s", backend.ErrUnknownOutcome, what, a.Concern.Message)
	}
	for _, e := range a.Errors {
		if e.Code == duplicateKey {
			continue
		}
		kind := kindOfCode(e.Code)
		if changed {
			kind = backend.ErrUnknownOutcome // some statements were done, by this count
		}
		return fmt.Errorf("mongodb: %w: %s: %s", kind, what, e.Message)
	}
	return nil
}

// Codes of errors with which a server says that it has not executed a command.
var (
	// Another member can do it, or this one later.
	notNow = []int{
		10107, 13435, 13436, 10058, // it is not the primary, or not ready to be a member
		112, 24, 46, // others wrote the same document, or had it locked
	}
	// Repeating the command does not help.
	notDone = []int{
		13, 18, // not allowed
		59, 115, 166, 238, 323, // not supported
		2, 9, 14, 20, 40, 52, 57, 66, 72, 73, 40324, // not understood
		121, 10334, 17280, 17419, // refused by a validator, or too large
		26, // no such collection
	}
)

// kindOfCode returns the kind of error for a server's code in the answer to a write. If a code is not known to
// mean that nothing was done, the outcome is unknown: an interruption, as by a change of the primary or a time
// limit, may come after the write.
func kindOfCode(code int) error {
	switch {
	case slices.Contains(notNow, code):
		return backend.ErrUnavailable
	case slices.Contains(notDone, code):
		return backend.ErrInvalid
	}
	return backend.ErrUnknownOutcome
}

// unwritten turns the failure of a command that writes into an error for the caller.
func (s *Store) unwritten(what string, err error) error {
	kind := kindOfFailure(err)
	if kind == backend.ErrUnknownOutcome {
		kind = s.unknown()
	} else {
		kind = s.kind(kind)
	}
	return fmt.Errorf("mongodb: %w: %s: %w", kind, what, err)
}

// unknown returns the kind of error for what may have happened, whether or not the store was closed meanwhile.
func (s *Store) unknown() error {
	if s.closed.Err() != nil {
		return fmt.Errorf("%w (%w)", backend.ErrUnknownOutcome, backend.ErrClosed)
	}
	return backend.ErrUnknownOutcome
}

// kindOfFailure returns the kind of error of a command that writes.
func kindOfFailure(err error) error {
	var command mongo.CommandError
	switch {
	case isUnsent(err):
		return backend.ErrUnavailable
	case !errors.As(err, &command) || command.Code == 0:
		return backend.ErrUnknownOutcome
	case command.HasErrorLabel(xdriver.NoWritesPerformed),
		command.HasErrorLabel(xdriver.ErrSystemOverloadedError) && command.HasErrorLabel(xdriver.ErrRetryableError):
		return backend.ErrUnavailable
	}
	return kindOfCode(int(command.Code))
}

// isUnsent reports whether the driver certainly sent nothing: there was no server, no connection, or no time.
// It takes an unknown error for sent.
func isUnsent(err error) bool {
	var (
		selection topology.ServerSelectionError
		queue     topology.WaitQueueTimeoutError
		dial      topology.ConnectionError
		command   mongo.CommandError
	)
	switch {
	case err == context.Canceled, err == context.DeadlineExceeded: // this error occurs only before the send
		return true
	case errors.As(err, &selection), errors.As(err, &queue),
		errors.Is(err, xdriver.ErrDeadlineWouldBeExceeded), errors.Is(err, mongo.ErrClientDisconnected), errors.Is(err, topology.ErrServerClosed):
		return true
	case errors.As(err, &dial) && strings.Contains(dial.Error(), "error occurred during connection handshake"):
		return true
	case errors.As(err, &command) && command.Code == 0 && !command.HasErrorLabel(xdriver.NetworkError):
		return strings.Contains(command.Error(), "was cleared because another operation failed")
	}
	return false
}

// unread turns the failure of a read into an error for the caller. Nothing can have been changed.
func (s *Store) unread(what string, err error) error {
	kind := backend.ErrUnavailable
	var command mongo.CommandError
	if errors.As(err, &command) && slices.Contains(notDone, int(command.Code)) {
		kind = backend.ErrInvalid
	}
	return fmt.Errorf("mongodb: %w: %s: %w", s.kind(kind), what, err)
}
