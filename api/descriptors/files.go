package descriptors

import (
	"path"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Files returns the given files and all that they import, each after those that it imports itself.
func Files(roots ...protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
	c := collection{set: new(descriptorpb.FileDescriptorSet), done: make(map[string]bool)}
	for _, file := range roots {
		c.add(file)
	}
	return c.set
}

type collection struct {
	set  *descriptorpb.FileDescriptorSet
	done map[string]bool // by path
}

func (c *collection) add(file protoreflect.FileDescriptor) {
	if c.done[file.Path()] {
		return
	}
	c.done[file.Path()] = true
	described := protodesc.ToFileDescriptorProto(file)
	for i := range file.Imports().Len() {
		imported := registered(file.Imports().Get(i).FileDescriptor)
		described.Dependency[i] = imported.Path()
		if !imported.IsPlaceholder() {
			c.add(imported)
		}
	}
	c.set.File = append(c.set.File, described)
}

// registered finds what stands behind an import: etcd's files are registered without their folders.
func registered(file protoreflect.FileDescriptor) protoreflect.FileDescriptor {
	if file.IsPlaceholder() {
		if found, err := protoregistry.GlobalFiles.FindFileByPath(path.Base(file.Path())); err == nil {
			return found
		}
	}
	return file
}
