package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/descriptors"
)

// sources are seen from the root of the module, which is where their code is written from.
var sources = []string{
	"api/v3lockpb/v3lock.proto", "api/v3electionpb/v3election.proto", "api/leasekeeperv1/leasekeeper.proto",
	"api/leasekeeperv1/members.proto", "internal/peer/peerpb/peer.proto", "internal/replica/logpb/log.proto",
	"internal/replica/memberpb/member.proto",
}

func main() {
	if err := generate(); err != nil {
		panic(err)
	}
}

func generate() error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data, err := proto.Marshal(descriptors.Files(
		etcdserverpb.File_rpc_proto, annotations.File_google_api_annotations_proto, timestamppb.File_google_protobuf_timestamp_proto))
	if err != nil {
		return err
	}
	known := filepath.Join(dir, "etcd.binpb")
	if err := os.WriteFile(known, data, 0o600); err != nil {
		return err
	}
	// protoc finds nothing beside a set of descriptors, so it gets ours in that form as well.
	own := filepath.Join(dir, "own.binpb")
	root := filepath.Join("..", "..")
	steps := [][]string{
		append([]string{"--proto_path=.", "--descriptor_set_in=" + known, "--include_source_info", "--descriptor_set_out=" + own}, sources...),
		append([]string{"--descriptor_set_in=" + known + string(os.PathListSeparator) + own,
			"--go_out=.", "--go_opt=paths=source_relative", "--go-grpc_out=.", "--go-grpc_opt=paths=source_relative",
			"--grpc-gateway_out=.", "--grpc-gateway_opt=paths=source_relative"}, sources...),
	}
	for _, args := range steps {
		cmd := exec.Command("protoc", args...)
		cmd.Dir = root
		if told, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("protoc: %w\n%s", err, told)
		}
	}
	return nil
}
