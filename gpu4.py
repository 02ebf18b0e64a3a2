import sys, os; sys.path[:0]=['bench/speed','.']
import torch, kbuild
from torch_clock import TorchClock
from kbuild.aot.tune import interleaved
import kbuild.compiler.transforms.gpu.dot.optimize_dot_operands as odo, kbuild.compiler.lower.mma.dot as md, kbuild.compiler.lower.mma.local_dot as ld
torch.backends.cuda.matmul.allow_tf32=False
n=4096; a,b=(torch.randn(n,n,device='cuda') for _ in range(2)); c=torch.empty_like(a); right=a.double()@b.double()
at,bt=a.t().contiguous(),b.t().contiguous()
print(torch.cuda.get_device_name())
calls={'cublas':lambda: torch.mm(a,b,out=c)}; info={}
from kbuild.compiler.transforms.gpu.pipeline import expand as ex
again=ex._Expansion._may_repeat
turned,order=odo.is_turned,md.serpentine
def blk(elements):
    rows={}
    for at in sorted(elements): rows.setdefault(at[:-1],[]).append(at)
    rows=list(rows.values()); out=[]; flip=0
    for ib in range(0,len(rows),2):
        w=len(rows[0]); cb=list(range(0,w,4))
        for n_ in cb[::-1] if ib//2%2 else cb:
            for r in rows[ib:ib+2]:
                part=r[n_:n_+4]; out+=part[::-1] if flip%2 else part; flip+=1
    return out
def add(bm,bn,bk,w,s,ta=0,tb=0,turn=1,o='serp',held='first',mask=False,g=8,**opts):
    key=(bm,bn,bk,w,s,f'TA{ta}',f'TB{tb}','turn' if turn else 'as it is',o,held,'mask' if mask else '',*opts.items())
    odo.is_turned=turned if turn else lambda *x: False
    ex._Expansion._may_repeat=again if held=='first' else lambda *x: False
    md.serpentine=order if o=='serp' else blk
    try: art=kbuild.compile('sgt4.py:sgemm4',signature={**dict.fromkeys('abc','*fp32:16'),**dict.fromkeys('MNK','i32:16')},constexprs=dict(BM=bm,BN=bn,BK=bk,G=g,TA=ta,TB=tb,MASK=mask),target='sm_90',num_warps=w,num_stages=s,**opts); k=kbuild.load(art)
    except Exception as e: print(key,'FAILED',str(e)[:100]); return
    f=lambda: k[(n//bm*(n//bn),)](at if ta else a,bt if tb else b,c,n,n,n)
    c.fill_(float('nan')); f(); torch.cuda.synchronize(); err=((c.double()-right).norm()/right.norm()).item()
    calls[key]=f; info[key]=f'regs {art.metadata.registers} shared {art.metadata.shared} spills {art.metadata.spill_stores} err {err:.1e}'
for cfg in ((128,64,16,4,4),(128,64,32,4,3),(128,128,32,8,3),(128,128,16,8,3),(128,128,16,4,4),(64,64,16,2,4),(64,64,32,2,3)):
    add(*cfg); add(*cfg,held='zeros')
add(64,64,32,4,3)
add(256,128,16,8,3)
add(128,64,16,4,4,mask=True)
add(128,128,32,8,3,mask=True)
add(64,128,16,4,4)
add(64,128,32,4,3)
for ta,tb in ((1,0),(0,1),(1,1)):
    add(128,128,32,8,3,ta,tb); add(128,64,16,4,4,ta,tb)
us=interleaved.interleave(calls,TorchClock(torch),0.15)
for k,v in sorted(us.items(),key=lambda x:x[1]): print(k,round(v,1),'of cuBLAS',round(us['cublas']/v,3),'TFLOPS',round(2*n**3/v/1e6,1),info.get(k,''))
