// Objective-C: message sends, blocks and properties do not get in the way.
#import <Foundation/Foundation.h>
#import "ggml.h"

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
            memcpy((char *) t->data + 1, p, [list count]);
        }
        id<Buffer> buffer = [device newBufferWithBytes:t->data length:ggml_size(t) options:0];
        [buffer didModify:NSMakeRange(0, 1)];
        dispatch_async(queue, ^{
            ggml_use(t->src[0]->data);
        });
        t->data = [buffer contents];
    }
}
