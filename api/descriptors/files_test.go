package descriptors

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func TestImportsLeadSomewhere(t *testing.T) {
	set := Files(etcdserverpb.File_rpc_proto, etcdserverpb.File_rpc_proto)
	files, err := protodesc.NewFiles(set) // fails if an import is not there, or a file is there twice
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []protoreflect.FullName{"etcdserverpb.KV", "mvccpb.KeyValue"} {
		if _, err := files.FindDescriptorByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
