// Objective-C: message sends, blocks and properties do not get in the way.
#import <Foundation/Foundation.h>
#import "ggml.h"
#include "ggml-numa-mirror.h"

@interface Holder : NSObject
@property (nonatomic) void * data;
@end

struct sets { NSMutableArray * data; };

static void f(struct ggml_tensor * t, struct sets * s, NSArray * list, void * p) {
    @autoreleasepool {
        for (Holder * h in list) {
            ggml_use(h.data);
            h.data = p;
        }
        [s->data addObject:list];
        if ([s->data count] > 0) {
            memcpy((char *) tensor_data(t) + 1, p, [list count]);
        }
        id<Buffer> buffer = [device newBufferWithBytes:tensor_data(t) length:ggml_size(t) options:0];
        [buffer didModify:NSMakeRange(0, 1)];
        dispatch_async(queue, ^{
            ggml_use(tensor_data(t->src[0]));
        });
        tensor_set_data(t, [buffer contents]);
    }
}
