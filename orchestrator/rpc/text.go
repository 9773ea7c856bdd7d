package rpc

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// readable makes every text of m UTF-8, because protobuf sends nothing else. Texts quote clients and engines,
// and one bad byte would end a whole stream.
func readable[M proto.Message](m M) M {
	mend(m.ProtoReflect())
	return m
}

func mend(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			// The messages have none.
		case f.IsList():
			mendList(f, v.List())
		case f.Message() != nil:
			mend(v.Message())
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, text(v))
		}
		return true
	})
}

func mendList(f protoreflect.FieldDescriptor, all protoreflect.List) {
	for i := range all.Len() {
		switch {
		case f.Message() != nil:
			mend(all.Get(i).Message())
		case f.Kind() == protoreflect.StringKind:
			all.Set(i, text(all.Get(i)))
		}
	}
}

func text(v protoreflect.Value) protoreflect.Value {
	return protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD"))
}
