package raftlog

import "fmt"

// Silent is a logger for raft that logs nothing: package replica reports events itself. Raft's panics stay panics.
type Silent struct{}

func (Silent) Debug(...any)            {}
func (Silent) Debugf(string, ...any)   {}
func (Silent) Info(...any)             {}
func (Silent) Infof(string, ...any)    {}
func (Silent) Warning(...any)          {}
func (Silent) Warningf(string, ...any) {}
func (Silent) Error(...any)            {}
func (Silent) Errorf(string, ...any)   {}
func (Silent) Fatal(v ...any)          { panic("raft: " + fmt.Sprint(v...)) }
func (Silent) Fatalf(f string, v ...any) {
	panic("raft: " + fmt.Sprintf(f, v...))
}
func (Silent) Panic(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (Silent) Panicf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
