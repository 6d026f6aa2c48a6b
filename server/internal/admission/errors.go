package admission

import (
	"errors"
)

// Why a claim does not get a place to wait. Neither error says anything about the name.
var (
	ErrNoPlaces = errors.New("all places to wait are taken on this server, whatever the name: try again later, " +
		"or allow more with --max-requests")
	ErrShareTaken = errors.New("this client has as many claims waiting on this server as one client may: end some; " +
		"this says nothing about whether the name is free")
)

// Why a request or its answer gets no memory.
var (
	ErrAnswersWait  = errors.New("the answers that this connection has not read leave no room for another one: read them, or ask for less at a time")
	ErrNoAnswers    = errors.New("the server has no memory left for more answers: try again later, or ask for less at a time")
	ErrRequestsWait = errors.New("the requests of this connection that are under way leave no room for another one: send fewer at a time")
	ErrNoRequests   = errors.New("the server has no memory left for more requests: try again later")
	ErrNoStreams    = errors.New("too many streams are open: use those that are there, or allow more with --memory-limit")
)

// The reasons under which the server counts what it refuses for want of room. They are labels of a metric.
const (
	ReasonPlaces   = "too_many_waiting"
	ReasonShare    = "share_of_waiting"
	ReasonWatchers = "too_many_watchers"
	ReasonRequests = "too_many_requests"
	ReasonMemory   = "no_memory"
)
