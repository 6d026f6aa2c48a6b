package admission

import (
	"errors"
)

// ErrNoPlaces and ErrShareTaken are the reasons why a claim may not wait. Neither says anything about the state of the
// name.
var (
	ErrNoPlaces = errors.New("as many claims wait on this server as it allows, for all names together: try again later, " +
		"or allow more with --max-requests")
	ErrShareTaken = errors.New("this client has as many waiting claims on this server as one client may have: end some; " +
		"this says nothing about whether the name is free")
)

// The errors below are the reasons why a request or its answer gets no memory.
var (
	ErrAnswersWait  = errors.New("the unread answers of this connection leave no memory for another one: read them, or request less at a time")
	ErrNoAnswers    = errors.New("the server has no memory left for more answers: try again later, or request less at a time")
	ErrRequestsWait = errors.New("the open requests of this connection leave no memory for another one: send fewer at a time")
	ErrNoRequests   = errors.New("the server has no memory left for more requests: try again later")
	ErrNoStreams    = errors.New("too many streams are open: use an open one, or allow more with --memory-limit")
)

// Reasons under which the server counts refusals. They are labels of a metric.
const (
	ReasonPlaces   = "too_many_waiting"
	ReasonShare    = "share_of_waiting"
	ReasonWatchers = "too_many_watchers"
	ReasonRequests = "too_many_requests"
	ReasonMemory   = "no_memory"
)
