package server

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasekeeper/leasekeeper/api/descriptors"
)

// registerReflection lets tools such as grpcurl list the server's services, in both versions of the protocol.
func registerReflection(g *grpc.Server) {
	own := reflection.ServerOptions{Services: g}
	var roots []protoreflect.FileDescriptor
	for name := range g.GetServiceInfo() {
		if d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name)); err == nil {
			roots = append(roots, d.ParentFile())
		}
	}
	// Registered files may import files that cannot be found. A tool that follows such an import would receive an
	// error.
	if files, err := protodesc.NewFiles(descriptors.Files(roots...)); err == nil {
		own.DescriptorResolver = files
	}
	reflectionpb.RegisterServerReflectionServer(g, reflection.NewServerV1(own))
	alphapb.RegisterServerReflectionServer(g, reflection.NewServer(own))
}
