package main

import (
	"io"
	"os"

	"google.golang.org/grpc/grpclog"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/runner"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

func main() {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		// gRPC logs errors of single connections. They are not errors of this program, so it logs them only on request.
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	}
	if os.Args[0] == supervise.GuardName {
		os.Exit(command.Report(runner.GuardError(), os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
