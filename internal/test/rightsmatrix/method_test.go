package rightsmatrix

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// method is a method of a service.
type method struct {
	name  string // as gRPC has it, such as /etcdserverpb.KV/Put
	desc  protoreflect.MethodDescriptor
	paths []string // of the gateways
}

func (m *method) streams() bool { return m.desc.IsStreamingClient() || m.desc.IsStreamingServer() }

// bounded reports whether a stream ends by itself, so that it can be read to its end. There is one snapshot at a time.
func (m *method) bounded() bool { return strings.HasSuffix(m.name, "/Snapshot") }

// tried returns the paths at which a caller tries a method, with "" for gRPC. Etcd's older paths lead to the same code, so
// nobody tries all of them, and the others only those of keys.
func (m *method) tried(column string) []string {
	all := append([]string{""}, m.paths...)
	for _, path := range m.paths {
		if rest, ok := strings.CutPrefix(path, "/v3/"); ok && (column == "nobody" || strings.HasPrefix(rest, "kv/")) {
			all = append(all, "/v3beta/"+rest)
		}
	}
	return all
}

// methodsOf asks a server for the methods of all its services.
func methodsOf(t *testing.T, conn *grpc.ClientConn) map[string]*method {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	wantOK(t, err)
	wantOK(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	resp, err := stream.Recv()
	wantOK(t, err)
	found := make(map[string]*method)
	for _, s := range resp.GetListServicesResponse().GetService() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s.Name))
		wantOK(t, err)
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := &method{name: "/" + s.Name + "/" + string(methods.Get(i).Name()), desc: methods.Get(i)}
			m.paths = pathsOf(m.desc)
			found[m.name] = m
		}
	}
	return found
}

// pathsOf returns the paths at which the gateways serve a method.
func pathsOf(d protoreflect.MethodDescriptor) (paths []string) {
	rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	for _, r := range append([]*annotations.HttpRule{rule}, rule.AdditionalBindings...) {
		paths = append(paths, r.GetPost())
	}
	return paths
}
